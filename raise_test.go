package croft

import (
	"context"
	"errors"
	"net/url"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/guard/guardtest"
	"github.com/croft-dev/croft/tenure"
)

// fencedTarget is a guard in memory. It has a name, and can be made to fail.
type fencedTarget struct {
	guardtest.Memory
	name string
	mu   sync.Mutex
	fail error
}

func (g *fencedTarget) Target() string { return g.name }

func (g *fencedTarget) Raise(ctx context.Context, s fence.Stamp) (fence.Mark, error) {
	g.mu.Lock()
	fail := g.fail
	g.mu.Unlock()
	if fail != nil {
		return fence.Mark{}, fail
	}
	return g.Memory.Raise(ctx, s)
}

func (g *fencedTarget) setFail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fail = err
}

func (r *rig) mark(g guard.Guard) fence.Mark {
	r.Helper()
	m, err := g.Mark(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	return m
}

func TestTheFenceIsUpWhenAcquireReturns(t *testing.T) {
	inBubble(t, func(r *rig) {
		one, two := &fencedTarget{name: "mem://one"}, &fencedTarget{name: "mem://two"}
		var seen events
		l := r.acquire(r.client(nil, &Options{Observe: seen.observe}), "jobs/one", &LeaseOptions{Guards: []guard.Guard{one, two}})
		for _, g := range []guard.Guard{one, two} {
			if m := r.mark(g); m.Token != l.Token() || m.Grant != l.Stamp().Grant {
				r.Errorf("%s has mark %+v, want the lease's stamp", g.Target(), m)
			}
		}
		if rec := r.record("jobs/one"); len(rec.Guards) != 2 || rec.Guards[0] != "mem://one" {
			r.Errorf("the record names the guards %v", rec.Guards)
		}
		if got := seen.of(EventRaised); len(got) != 2 || got[0].Target == "" || got[0].Token != l.Token() {
			r.Errorf("raised: %+v", got)
		}
	})
}

func TestAFailedRaiseReleasesTheLease(t *testing.T) {
	inBubble(t, func(r *rig) {
		broken := errors.New("the disk is full")
		good, bad := &fencedTarget{name: "mem://good"}, &fencedTarget{name: "mem://bad", fail: broken}
		var seen events
		c := r.client(nil, &Options{Observe: seen.observe})
		_, err := c.Acquire(r.Context(), "jobs/one", &LeaseOptions{HoldFor: time.Hour, Guards: []guard.Guard{good, bad}})
		var at *GuardError
		if !errors.As(err, &at) || at.Target != "mem://bad" || !errors.Is(err, broken) {
			r.Errorf("%v, want to be told that mem://bad failed, and how", err)
		}
		if rec := r.record("jobs/one"); rec.State != tenure.Free || rec.Ended != tenure.EndFailed {
			r.Errorf("the key is %s, ended %q; want it released as failed", rec.State, rec.Ended)
		}
		if got := seen.of(EventRaiseRefused); len(got) != 1 || got[0].Target != "mem://bad" {
			r.Errorf("refused: %+v", got)
		}
		bad.setFail(nil)
		r.acquire(c, "jobs/one", &LeaseOptions{Guards: []guard.Guard{good, bad}})
	})
}

func TestAGuardOfAnotherKeyIsSaidToBe(t *testing.T) {
	inBubble(t, func(r *rig) {
		g := &fencedTarget{name: "mem://one"}
		c := r.client(nil, nil)
		r.acquire(c, "jobs/one", &LeaseOptions{Guards: []guard.Guard{g}})
		_, err := c.Acquire(r.Context(), "jobs/two", &LeaseOptions{Guards: []guard.Guard{g}})
		var at *GuardError
		if !errors.As(err, &at) || !errors.Is(err, fence.ErrWrongKey) {
			r.Errorf("%v, want the wrong key", err)
		}
		if rec := r.record("jobs/two"); rec.Terms != 1 || rec.State != tenure.Free {
			r.Errorf("%d terms, %s; want one try, released", rec.Terms, rec.State)
		}
	})
}

// TestAHolderRefusedAsStaleAcquiresAbove: the guard remembers a token that the
// store does not, from another store or a later clock.
func TestAHolderRefusedAsStaleAcquiresAbove(t *testing.T) {
	for name, collision := range map[string]bool{"stale": false, "collision": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				old := fence.Stamp{Key: "jobs/one", Token: fence.Token(time.Now().Add(time.Hour).UnixMicro()), Grant: tenure.NewSecret().Grant()}
				if collision {
					old.Token = fence.Token(time.Now().UnixMicro()) // the token that the store will issue
				}
				g := &fencedTarget{name: "mem://one"}
				if _, err := g.Memory.Raise(r.Context(), old); err != nil {
					r.Fatal(err)
				}
				l := r.acquire(r.client(nil, nil), "jobs/one", &LeaseOptions{Guards: []guard.Guard{g}})
				if l.Token() <= old.Token || l.Record().Cause != tenure.Recovery {
					r.Errorf("token %d, cause %s; want one above %d, by recovery", l.Token(), l.Record().Cause, old.Token)
				}
				if m := r.mark(g); m.Grant != l.Stamp().Grant {
					r.Errorf("the mark is %+v, want the lease's", m)
				}
				if rec := r.record("jobs/one"); rec.Terms != 2 {
					r.Errorf("%d terms, want two: it acquires again once", rec.Terms)
				}
			})
		})
	}
}

// TestARecoveryIsTriedOnce: a guard that refuses every token is not followed.
func TestARecoveryIsTriedOnce(t *testing.T) {
	inBubble(t, func(r *rig) {
		g := &fencedTarget{name: "mem://one"}
		g.setFail(&fence.StaleError{Newest: fence.Mark{Key: "jobs/one", Token: fence.Token(time.Now().Add(time.Hour).UnixMicro())}})
		_, err := r.client(nil, nil).Acquire(r.Context(), "jobs/one", &LeaseOptions{Guards: []guard.Guard{g}})
		if !errors.Is(err, ErrStale) {
			r.Errorf("%v, want stale", err)
		}
		if rec := r.record("jobs/one"); rec.Terms != 2 || rec.State != tenure.Free {
			r.Errorf("%d terms, %s; want two, and released", rec.Terms, rec.State)
		}
		// Following a made-up token would use up the key's tokens.
		g.setFail(&fence.StaleError{Newest: fence.Mark{Key: "jobs/two", Token: 1 << 51}})
		_, err = r.client(nil, nil).Acquire(r.Context(), "jobs/two", &LeaseOptions{Guards: []guard.Guard{g}})
		if rec := r.record("jobs/two"); !errors.Is(err, ErrStale) || rec.Terms != 1 || rec.State != tenure.Free {
			r.Errorf("%v, %d terms, %s; want stale, one, and released", err, rec.Terms, rec.State)
		}
	})
}

// TestALeaseIsKeptWhileItsFencesAreRaised: slow guards do not cost the lease.
func TestALeaseIsKeptWhileItsFencesAreRaised(t *testing.T) {
	inBubble(t, func(r *rig) {
		g := &slowTarget{fencedTarget{name: "mem://slow"}, 20 * time.Second}
		l := r.acquire(r.client(nil, &Options{CallTimeout: time.Minute}), "jobs/one", &LeaseOptions{TTL: 5 * time.Second, Guards: []guard.Guard{g}})
		if err := l.Err(); err != nil {
			r.Error(err)
		}
	})
}

// TestAKeyIsHeldWhileItsFencesAreRaised: also for other callers of the same
// client, whose answer is "held", not "unknown".
func TestAKeyIsHeldWhileItsFencesAreRaised(t *testing.T) {
	inBubble(t, func(r *rig) {
		g := &slowTarget{fencedTarget{name: "mem://slow"}, 20 * time.Second}
		c := r.client(nil, &Options{CallTimeout: time.Minute})
		var all sync.WaitGroup
		all.Go(func() { r.acquire(c, "jobs/one", &LeaseOptions{Guards: []guard.Guard{g}}) })
		synctest.Wait()
		for _, wait := range []time.Duration{0, 3 * time.Second} {
			start := time.Now()
			if _, err := c.Acquire(r.Context(), "jobs/one", &LeaseOptions{WaitFor: wait}); !errors.Is(err, ErrHeld) {
				r.Errorf("%v, want held", err)
			}
			wantAfter(r, start, wait, wait)
		}
		all.Wait()
	})
}

type slowTarget struct {
	fencedTarget
	d time.Duration
}

func (g *slowTarget) Raise(ctx context.Context, s fence.Stamp) (fence.Mark, error) {
	select {
	case <-time.After(g.d):
		return g.fencedTarget.Raise(ctx, s)
	case <-ctx.Done():
		return fence.Mark{}, context.Cause(ctx)
	}
}

// TestAGuardThatHangsIsGivenUp: after CallTimeout, and at once when the caller
// leaves.
func TestAGuardThatHangsIsGivenUp(t *testing.T) {
	inBubble(t, func(r *rig) {
		g := &slowTarget{fencedTarget{name: "mem://slow"}, time.Hour}
		c := r.client(nil, nil)
		start := time.Now()
		_, err := c.Acquire(r.Context(), "jobs/one", &LeaseOptions{Guards: []guard.Guard{g}})
		var at *GuardError
		if !errors.As(err, &at) || !errors.Is(err, context.DeadlineExceeded) {
			r.Errorf("%v, want the guard and the deadline", err)
		}
		wantAfter(r, start, 5*time.Second, 5*time.Second)

		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		start = time.Now()
		if _, err := c.Acquire(ctx, "jobs/one", &LeaseOptions{Guards: []guard.Guard{g}}); !errors.Is(err, context.DeadlineExceeded) {
			r.Errorf("%v, want the end of the context", err)
		}
		wantAfter(r, start, time.Second, time.Second)
		if rec := r.record("jobs/one"); rec.State != tenure.Free {
			r.Errorf("the key is still %s", rec.State)
		}
	})
}

// targets has, by host, the guards that the tests' own URL scheme opens, or
// functions that delay the opener. opened has the hosts that were asked for.
var targets, opened sync.Map

func init() {
	guard.Register("crofttest", func(_ context.Context, u *url.URL) (guard.Guard, error) {
		opened.Store(u.Host, true)
		g, ok := targets.Load(u.Host)
		if hang, yes := g.(func()); yes {
			hang()
		}
		if _, yes := g.(guard.Guard); !ok || !yes {
			return nil, errors.New("no such target")
		}
		return g.(guard.Guard), nil
	})
}
