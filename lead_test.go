package croft

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestOneOfAllCandidatesLeads: leaders follow each other, no two lead at the
// same time, and every candidate hears of every leader in order.
func TestOneOfAllCandidatesLeads(t *testing.T) {
	inBubble(t, func(r *rig) {
		const candidates = 3
		ctx, cancel := context.WithTimeout(r.Context(), time.Hour-time.Minute) // in the middle of a term
		defer cancel()
		var leading, terms atomic.Int64
		done := make(chan error)
		var lost, elected [candidates]int
		var seen [candidates][]Record
		for i := range candidates {
			c := r.client(nil, nil)
			go func() {
				done <- c.Lead(ctx, "jobs/leader", &Election{
					OnElected: func(ctx context.Context, l *Lease) error {
						defer leading.Add(-1)
						if leading.Add(1) > 1 {
							r.Error("two lead at the same time")
						}
						if n := len(seen[i]); n == 0 || seen[i][n-1].Token != l.Token() {
							r.Error("the leader was not told of itself")
						}
						terms.Add(1)
						elected[i]++
						select {
						case <-ctx.Done():
							return ctx.Err()
						case <-time.After(5 * time.Minute):
							return errWork
						}
					},
					OnLost: func(err error) {
						lost[i]++
						if !errors.Is(err, errWork) && ctx.Err() == nil {
							r.Errorf("OnLost got %v", err)
						}
					},
					OnNewLeader: func(leader Record) { seen[i] = append(seen[i], leader) },
				})
			}()
		}
		for range candidates {
			if err := <-done; err != nil {
				r.Errorf("Lead returned %v at the end of its context", err)
			}
		}
		if n := terms.Load(); n != 12 {
			r.Errorf("%d terms of 5 minutes in 59", n)
		}
		for i := range candidates {
			if lost[i] != elected[i] {
				r.Errorf("candidate %d was elected %d times and lost %d times", i, elected[i], lost[i])
			}
			if len(seen[i]) != 12 {
				r.Errorf("candidate %d has seen %d leaders", i, len(seen[i]))
			}
			for n := 1; n < len(seen[i]); n++ {
				if seen[i][n].Token <= seen[i][n-1].Token {
					r.Errorf("candidate %d was told of token %d after %d", i, seen[i][n].Token, seen[i][n-1].Token)
				}
			}
		}
	})
}

// TestOneLeadsInADirectory: candidates with stores of their own contend, and
// each leads in its turn.
func TestOneLeadsInADirectory(t *testing.T) {
	client := clientsOfDir(t)
	var leading atomic.Int64
	var all sync.WaitGroup
	for range 4 {
		c := client()
		all.Go(func() {
			turns := 0
			err := c.Lead(t.Context(), "jobs/leader", &Election{
				OnElected: func(context.Context, *Lease) error {
					defer leading.Add(-1)
					if leading.Add(1) > 1 {
						t.Error("two lead at the same time")
					}
					if turns++; turns == 1 {
						return errWork // it is a candidate again
					}
					return nil
				},
				OnNewLeader: func(Record) {},
			})
			if err != nil && !errors.Is(err, ErrUnknown) || turns != 2 { // a release may take too long on a busy machine
				t.Errorf("after %d turns: %v", turns, err)
			}
		})
	}
	all.Wait()
}

// TestALeaderThatStepsDownIsNoCandidate: its Lead returns nil, and another
// leads at once.
func TestALeaderThatStepsDownIsNoCandidate(t *testing.T) {
	inBubble(t, func(r *rig) {
		start := time.Now()
		for range 2 {
			stepped := false
			if err := r.client(nil, nil).Lead(r.Context(), "jobs/leader", &Election{
				OnElected: func(context.Context, *Lease) error { return nil },
				OnLost:    func(err error) { stepped = err == nil },
			}); err != nil || !stepped {
				r.Errorf("stepped down: %t, %v", stepped, err)
			}
		}
		wantAfter(r, start, 0, time.Second)
	})
}

// TestALostLeadershipEndsTheWork: an operator revokes the lease. The leader's
// context ends, OnLost says why, and the process is a candidate again.
func TestALostLeadershipEndsTheWork(t *testing.T) {
	inBubble(t, func(r *rig) {
		c, operator := r.client(nil, nil), r.client(nil, nil)
		var told []error
		turns := 0
		err := c.Lead(r.Context(), "jobs/leader", &Election{
			OnElected: func(ctx context.Context, _ *Lease) error {
				if turns++; turns == 2 {
					return Final(errWork)
				}
				if _, err := operator.Revoke(r.Context(), "jobs/leader", ByHand{Note: "test"}); err != nil {
					r.Error(err)
				}
				<-ctx.Done()
				return nil // a leader that stops when told has not stepped down
			},
			OnLost: func(err error) { told = append(told, err) },
		})
		if turns != 2 || !errors.Is(err, errWork) {
			r.Errorf("after %d turns: %v", turns, err)
		}
		if len(told) != 2 || lossIn(told[0]) != TakenOver || !errors.Is(told[1], errWork) {
			r.Errorf("OnLost was told %v", told)
		}
	})
}

// TestAnElectionEndsWithItsClient: Close ends the wait of a candidate, and bad
// input ends an election at once.
func TestAnElectionEndsWithItsClient(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.acquire(r.client(nil, nil), "jobs/leader", nil)
		c := r.client(nil, nil)
		never := func(context.Context, *Lease) error {
			r.Error("it was elected")
			return nil
		}
		for _, e := range []*Election{nil, {}, {OnElected: never, Lease: &LeaseOptions{TTL: -1}}} {
			if err := c.Lead(r.Context(), "jobs/leader", e); !errors.Is(err, ErrInvalid) {
				r.Errorf("%+v: %v", e, err)
			}
		}
		done := make(chan error)
		go func() { done <- c.Lead(r.Context(), "jobs/leader", &Election{OnElected: never}) }()
		time.Sleep(time.Minute)
		if err := c.Close(); err != nil {
			r.Error(err)
		}
		if err := <-done; !errors.Is(err, ErrClosed) {
			r.Errorf("Lead on a closed client: %v", err)
		}
	})
}
