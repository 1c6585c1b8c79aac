package history

import (
	"context"
	"errors"
	"fmt"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/refusals"
	"github.com/croft-dev/croft/tenure"
)

// Store records every request to the store that it wraps. A request that is
// sent twice is two operations.
type Store struct {
	store.Store
	r *Recorder
}

// NewStore wraps a store, to record the requests to it.
func (r *Recorder) NewStore(st store.Store) *Store { return &Store{Store: st, r: r} }

// Apply carries out requests. It does not record reserved keys: they hold
// Croft's notes for operators, not leases.
func (s *Store) Apply(ctx context.Context, requests []tenure.Request) []store.Answer {
	ids := make([]int64, len(requests))
	for i, req := range requests {
		if refusals.Reserved(req.Key) {
			continue
		}
		ids[i] = s.r.Begin(Call{
			Kind: Lease, Key: req.Key, Verb: req.Verb, Grant: req.Secret.Grant(), Owner: req.Owner,
			Resume: req.Resume,
		})
	}
	answers := s.Store.Apply(ctx, requests)
	for i, a := range answers {
		if refusals.Reserved(requests[i].Key) {
			continue
		}
		s.r.End(ids[i], answered(a))
	}
	return answers
}

// Watch passes on the store's hints. It fails if the store has none.
func (s *Store) Watch(ctx context.Context, key string) (<-chan struct{}, error) {
	if w, ok := s.Store.(store.Watcher); ok {
		return w.Watch(ctx, key)
	}
	return nil, fmt.Errorf("this store wakes nobody: %w", errors.ErrUnsupported)
}

// Acts passes on the store's news of operators' acts. It fails if the store has
// none.
func (s *Store) Acts(ctx context.Context) (<-chan string, error) {
	if a, ok := s.Store.(store.Announcer); ok {
		return a.Acts(ctx)
	}
	return nil, fmt.Errorf("this store tells of no acts: %w", errors.ErrUnsupported)
}

func answered(a store.Answer) Result {
	rec := a.Record
	out := Result{Outcome: OK, Token: rec.Token, Grant: rec.Grant, State: rec.State, Owner: rec.Owner}
	if !rec.IsZero() {
		out.Acquired, out.Deadline, out.Now = rec.Acquired.UnixMicro(), rec.Deadline.UnixMicro(), a.Now.UnixMicro()
	}
	if a.Err == nil {
		return out
	}
	out.Error = a.Err.Error()
	switch {
	case errors.Is(a.Err, tenure.ErrHeld):
		out.Outcome = Held
	case errors.Is(a.Err, tenure.ErrNotOwned):
		out.Outcome = NotOwned
	case errors.Is(a.Err, fence.ErrInvalid):
		out.Outcome = Invalid
	default:
		return Result{Outcome: Unknown, Error: out.Error}
	}
	return out
}
