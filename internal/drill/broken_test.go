package drill_test

import (
	"context"
	"errors"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// These stores and guards break the laws, and the drill must catch them. They
// have URLs, so that worker processes can open them, too. "broken://WAY/path"
// is the directory store at that path, broken in that way. "leaky://WAY/path"
// is the file guard.

func init() {
	store.Register("broken", func(ctx context.Context, u *url.URL) (store.Store, error) {
		st, err := store.Open(ctx, filepath.FromSlash(u.Path))
		if err != nil {
			return nil, err
		}
		switch u.Host {
		case "lenient":
			return lenient{st}, nil
		case "generous":
			return generous{st}, nil
		case "hasty":
			return hasty{st}, nil
		case "twice":
			return &twice{Store: st, secrets: map[tenure.Secret]tenure.Secret{}}, nil
		}
		return nil, errors.New("no such way to break a store")
	})
	guard.Register("leaky", func(ctx context.Context, u *url.URL) (guard.Guard, error) {
		g, err := guard.Open(ctx, filepath.FromSlash(u.Path))
		if err != nil {
			return nil, err
		}
		return leaky{g.(guard.Artifact), u.Host, u.Path}, nil
	})
}

// lenient accepts renewals and releases of anybody who once held the key. It
// does end the lease on such a release.
type lenient struct{ store.Store }

func (s lenient) Apply(ctx context.Context, requests []tenure.Request) []store.Answer {
	answers := s.Store.Apply(ctx, requests)
	for i, req := range requests {
		if !errors.Is(answers[i].Err, tenure.ErrNotOwned) {
			continue
		}
		switch req.Verb {
		case tenure.Renew:
			answers[i].Err = nil
		case tenure.Release:
			answers[i] = s.Store.Apply(ctx, []tenure.Request{{
				Verb: tenure.Revoke, Key: req.Key, Secret: tenure.NewSecret(), Actor: "lenient", Note: "whoever asks",
			}})[0]
		}
	}
	return answers
}

// generous grants a key that is held.
type generous struct{ store.Store }

func (s generous) Apply(ctx context.Context, requests []tenure.Request) []store.Answer {
	answers := s.Store.Apply(ctx, requests)
	for i := range requests {
		if errors.Is(answers[i].Err, tenure.ErrHeld) {
			answers[i].Err = nil
		}
	}
	return answers
}

// hasty ends leases after half of the promised time.
type hasty struct{ store.Store }

func (s hasty) Apply(ctx context.Context, requests []tenure.Request) []store.Answer {
	halved := append([]tenure.Request(nil), requests...)
	for i := range halved {
		halved[i].TTL /= 2
	}
	answers := s.Store.Apply(ctx, halved)
	for i := range answers {
		answers[i].Record = promise(answers[i].Record)
	}
	return answers
}

func (s hasty) Get(ctx context.Context, key string) (tenure.Record, error) {
	rec, err := s.Store.Get(ctx, key)
	return promise(rec), err
}

func promise(rec tenure.Record) tenure.Record {
	rec.Deadline, rec.TTL = rec.Deadline.Add(rec.TTL), 2*rec.TTL
	return rec
}

// twice forgets that it has seen a request. Asked again, it grants again.
type twice struct {
	store.Store
	mu      sync.Mutex
	secrets map[tenure.Secret]tenure.Secret // the client's secret, and the one used instead
}

func (s *twice) Apply(ctx context.Context, requests []tenure.Request) []store.Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := append([]tenure.Request(nil), requests...)
	for i := range taken {
		if taken[i].Verb == tenure.Acquire {
			s.secrets[requests[i].Secret] = tenure.NewSecret()
		}
		if secret := s.secrets[requests[i].Secret]; secret != "" {
			taken[i].Secret = secret
		}
	}
	return s.Store.Apply(ctx, taken)
}

// leaky is a file guard that does not check ("open"), or does not raise
// ("flat").
type leaky struct {
	guard.Artifact
	way, path string
}

func (g leaky) Target() string { return "leaky://" + g.way + g.path }

func (g leaky) Write(ctx context.Context, stamp fence.Stamp, r io.Reader) (guard.Receipt, error) {
	if g.way != "open" {
		return g.Artifact.Write(ctx, stamp, r)
	}
	text, err := io.ReadAll(r)
	if err == nil {
		err = os.WriteFile(g.path, text, 0o600)
	}
	return guard.Receipt{}, err
}

func (g leaky) Raise(ctx context.Context, stamp fence.Stamp) (fence.Mark, error) {
	if g.way != "flat" {
		return g.Artifact.Raise(ctx, stamp)
	}
	return stamp.Mark(), nil
}

// deaf is a store that does not answer.
type deaf struct{ store.Store }

func (deaf) Now(context.Context) (time.Time, error) {
	return time.Time{}, store.Unknown(errors.New("nobody there"))
}
