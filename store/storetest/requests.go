package storetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// Resolve sends a request until its outcome is known, or until ctx ends.
// Clients do the same when connections break.
func Resolve(ctx context.Context, st store.Store, req tenure.Request) store.Answer {
	for try := 0; ; try++ {
		answers := st.Apply(ctx, []tenure.Request{req})
		if len(answers) != 1 {
			return store.Answer{Err: store.Unknown(fmt.Errorf("one request got %d answers", len(answers)))}
		}
		if !errors.Is(answers[0].Err, store.ErrUnknown) || ctx.Err() != nil {
			return answers[0]
		}
		var wait time.Duration // none at first: most faults are over at once
		if try > 3 {
			wait = min(time.Millisecond<<min(try-4, 8), 20*time.Millisecond)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return answers[0]
		}
	}
}

// acquire makes a request for a key, with a new secret.
func acquire(key, owner string) tenure.Request {
	return tenure.Request{
		Verb: tenure.Acquire, Key: key, Secret: tenure.NewSecret(),
		Owner: owner, Instance: owner + "#1", TTL: long,
	}
}

// briefly shortens the TTL of a request.
func briefly(req tenure.Request) tenure.Request {
	req.TTL = brief
	return req
}

// The requests of a holder. of is the request that was granted.

func renew(of tenure.Request) tenure.Request {
	return tenure.Request{Verb: tenure.Renew, Key: of.Key, Secret: of.Secret}
}

func resume(of tenure.Request) tenure.Request {
	req := renew(of)
	req.Resume = true
	return req
}

func report(of tenure.Request, marker string) tenure.Request {
	return tenure.Request{Verb: tenure.Report, Key: of.Key, Secret: of.Secret, Progress: marker}
}

func release(of tenure.Request) tenure.Request {
	return tenure.Request{Verb: tenure.Release, Key: of.Key, Secret: of.Secret}
}

func fail(of tenure.Request) tenure.Request {
	req := release(of)
	req.Failed = true
	return req
}

// stranger makes the same request with another secret.
func stranger(req tenure.Request) tenure.Request {
	req.Secret = tenure.NewSecret()
	return req
}

// The requests of an operator.

func takeover(key string) tenure.Request {
	return byHand(tenure.Takeover, key, "operator", long)
}

func reserve(key, owner string) tenure.Request {
	return byHand(tenure.Reserve, key, owner, long)
}

func revoke(key string) tenure.Request {
	return byHand(tenure.Revoke, key, "", 0)
}

func byHand(verb tenure.Verb, key, owner string, ttl time.Duration) tenure.Request {
	return tenure.Request{
		Verb: verb, Key: key, Secret: tenure.NewSecret(),
		Owner: owner, TTL: ttl, Actor: "olga", Note: "the " + string(verb) + " of a check",
	}
}
