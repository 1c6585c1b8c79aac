package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/wire"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/refusals"
	"github.com/croft-dev/croft/tenure"
)

// Verb is something that an identity may do with a key.
type Verb string

// The verbs of a policy. The keys of the items in a queue begin with the
// queue's name and a slash. A rule about that prefix is a rule about the queue.
const (
	// Read: see the key's record and history, and watch it. In a queue: see its
	// items, effects and refusals.
	Read Verb = "read"
	// Acquire: take the key, or claim items.
	Acquire Verb = "acquire"
	// Work: renew, report, checkpoint and release what one holds. In a queue
	// also: complete and fail items, and requeue those that have lapsed.
	Work Verb = "work"
	// Add: add work items to a queue.
	Add Verb = "add"
	// Operate: take over, reserve and revoke what others hold. In a queue:
	// cancel, reassign, take over and replay items, and settle effects.
	// Operators of all keys also deliver effects, and prune.
	Operate Verb = "operate"
)

// Identity names the sender of a request.
type Identity struct {
	// Name is the owner and the actor in the records that the identity changes.
	// It is empty for an identity that may say who it is.
	Name string
	// Until is when the proof of the identity ends. Streams and waits end then,
	// too. The zero time means never.
	Until time.Time
}

// lasting returns a context that ends with the call, or with the proof of its
// identity.
func (c *call) lasting() (context.Context, context.CancelFunc) {
	if c.id.Until.IsZero() {
		return context.WithCancel(c.Context())
	}
	return context.WithDeadline(c.Context(), c.id.Until)
}

// Access decides who may what. Its methods are called at the same time.
type Access interface {
	// Identify says who sends a request. If its error matches
	// store.ErrUnknown, the answer is 503, and otherwise 401. The client is
	// told the text of the error.
	Identify(r *http.Request) (Identity, error)
	// May reports whether an identity may do something with a key. What an
	// identity may not read is hidden from it.
	May(id Identity, verb Verb, key string) bool
}

// verbOf returns the verb that a request of the law needs.
func verbOf(v tenure.Verb) Verb {
	switch v {
	case tenure.Acquire:
		return Acquire
	case tenure.Renew, tenure.Report, tenure.Checkpoint, tenure.Release:
		return Work
	}
	return Operate
}

// may reports whether an identity may do something with a key.
func (s *Server) may(id Identity, verb Verb, key string) bool {
	return s.o.Access == nil || s.o.Access.May(id, verb, key)
}

// admit decides whether a request may go to the store, and writes the
// identity's name into it. It returns a refusal, or nil.
func (s *Server) admit(id Identity, q *tenure.Request) *wire.Problem {
	noted, isNote := refusals.Noted(*q)
	if s.o.Access != nil {
		key, verb := q.Key, verbOf(q.Verb)
		if isNote {
			// A note that a write was refused. Clients may leave it about keys
			// that they may work on. Its actor is the owner that was refused.
			key, verb = noted, Work
		}
		if !s.may(id, Read, key) {
			p := unseen()
			return &p
		}
		if !s.may(id, verb, key) {
			p := wire.NewProblem(wire.NotAllowed, "%s may not %s %q; ask the operator of this server",
				id.Name, q.Verb, key)
			return &p
		}
		if id.Name != "" && !isNote {
			name(id, q)
		}
	}
	if err := s.check(*q, isNote); err != nil {
		p := wire.ProblemOf(err)
		return &p
	}
	return nil
}

// check refuses what the law refuses, and what clients in Go refuse themselves:
// a lease on a key where Croft keeps refusals and, from clients that are not
// trusted with everything, a token so high that guards would never admit it,
// nor any after it.
func (s *Server) check(q tenure.Request, isNote bool) error {
	if err := q.Check(); err != nil {
		return err
	}
	if !isNote {
		if err := refusals.CheckKey(q.Key); err != nil {
			return err
		}
	}
	if s.o.Access == nil {
		return nil
	}
	if err := fence.CheckAhead(q.Above, time.Now()); err != nil {
		return fmt.Errorf("above: %w", err)
	}
	return nil
}

// name writes the identity into a request. The owner of a reservation is the
// one for whom the key is reserved.
func name(id Identity, q *tenure.Request) {
	if q.Verb == tenure.Acquire || q.Verb == tenure.Takeover {
		q.Owner = id.Name
	}
	if q.Verb.ByHand() {
		q.Actor = id.Name
	}
}

// conceal takes the record out of a refusal about a key that the identity may
// not read. Only a note of a refusal is carried out on such a key. Its record
// has notes about other keys.
func (s *Server) conceal(id Identity, key string, a store.Answer) store.Answer {
	var refused *tenure.NotOwnedError
	if errors.As(a.Err, &refused) && !s.may(id, Read, key) {
		a.Record = tenure.Record{}
		a.Err = &tenure.NotOwnedError{Grant: refused.Grant, Why: tenure.WhyUnknown, Now: refused.Now}
	}
	return a
}

// unseen answers about a key that the store does not remember, and about a key
// that the identity may not read. The two answers do not differ.
func unseen() wire.Problem {
	return wire.NewProblem(wire.NotFound, "nothing is there; see whether the key is right, "+
		"and whether you may read it")
}
