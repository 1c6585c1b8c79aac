package croft

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/storetest"
	"github.com/croft-dev/croft/tenure"
)

// TestAnOperatorsActRaisesTheFence: at every guard that the holder had named
// and this process can reach. It says which it cannot reach.
func TestAnOperatorsActRaisesTheFence(t *testing.T) {
	acts := map[tenure.Verb]func(*Client, context.Context) (*Transfer, error){
		tenure.Takeover: func(c *Client, ctx context.Context) (*Transfer, error) {
			return c.Takeover(ctx, "jobs/one", ByHand{Note: "box1 hangs", Raise: trusted})
		},
		tenure.Reserve: func(c *Client, ctx context.Context) (*Transfer, error) {
			return c.Reserve(ctx, "jobs/one", "ana@box2", ByHand{Note: "box1 hangs", Raise: trusted})
		},
		tenure.Revoke: func(c *Client, ctx context.Context) (*Transfer, error) {
			return c.Revoke(ctx, "jobs/one", ByHand{Note: "box1 hangs", Raise: trusted})
		},
	}
	for verb, act := range acts {
		t.Run(string(verb), func(t *testing.T) {
			inBubble(t, func(r *rig) {
				near, far := &fencedTarget{name: "crofttest://near"}, &fencedTarget{name: "elsewhere://far"}
				targets.Store("near", near)
				l := r.acquire(r.client(nil, nil), "jobs/one", &LeaseOptions{Guards: []guard.Guard{near, far}})
				operator := r.client(nil, &Options{Owner: "op@desk"})
				got, err := act(operator, r.Context())
				if !errors.Is(err, ErrUnfenced) || got == nil {
					r.Fatalf("%v, want that it was done and one fence is not up", err)
				}
				if got.Before.Token != l.Token() || got.Record.Token <= l.Token() || got.Deed.Token != got.Record.Token || got.Deed.Stamp() != got.Record.Stamp() {
					r.Errorf("before %d, now %d, deed %d", got.Before.Token, got.Record.Token, got.Deed.Token)
				}
				if got.Record.Actor != "op@desk" || got.Record.Note != "box1 hangs" {
					r.Errorf("the record says %q did it because %q", got.Record.Actor, got.Record.Note)
				}
				if len(got.Raised) != 2 || got.Raised[0] != (Raise{Target: "crofttest://near"}) || got.Raised[1].Target != "elsewhere://far" || !errors.Is(got.Raised[1].Err, ErrNotAllowed) {
					r.Errorf("raised %+v", got.Raised)
				}
				if m := r.mark(near); m.Token != got.Record.Token {
					r.Errorf("the mark is at %d, want the burned token %d", m.Token, got.Record.Token)
				}
				if _, err := near.Memory.Raise(r.Context(), l.Stamp()); !errors.Is(err, ErrStale) {
					r.Errorf("the old holder at the guard: %v, want stale", err)
				}
				if len(got.Record.Guards) != 2 {
					r.Errorf("the record names the guards %v: the next operator would not know where", got.Record.Guards)
				}
				r.wantLost(l, TakenOver)
			})
		})
	}
}

func TestATakeoverIsALease(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.client(nil, &Options{Owner: "op@desk"})
		got, err := c.Takeover(r.Context(), "jobs/one", ByHand{Actor: "ana", Note: "by hand", TTL: 5 * time.Minute})
		if err != nil {
			r.Fatal(err)
		}
		if !got.Before.IsZero() || len(got.Raised) > 0 {
			r.Errorf("of a key nothing is known of: before %+v, raised %+v", got.Before, got.Raised)
		}
		if rec := got.Record; rec.State != tenure.Held || rec.Owner != "ana" || rec.TTL != 5*time.Minute || rec.Cause != tenure.Operator {
			r.Errorf("%+v", rec)
		}
		if _, err := c.Renew(r.Context(), got.Deed, false); err != nil {
			r.Error(err)
		}
		if _, err := c.Release(r.Context(), got.Deed, false); err != nil {
			r.Error(err)
		}
	})
}

func TestAnOperatorsActNeedsANote(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.client(nil, nil)
		r.acquire(c, "jobs/one", nil)
		if _, err := c.Revoke(r.Context(), "jobs/one", ByHand{Actor: "ana"}); !errors.Is(err, ErrInvalid) {
			r.Errorf("%v, want invalid", err)
		}
		if rec := r.record("jobs/one"); rec.State != tenure.Held {
			r.Error("it changed something")
		}
	})
}

// TestLaw6AnOperatorsActHappensOnce: however often its replies are lost.
func TestLaw6AnOperatorsActHappensOnce(t *testing.T) {
	inBubble(t, func(r *rig) {
		st := storetest.DropReply(r.st, storetest.First(3, func(req tenure.Request) bool { return req.Verb.ByHand() }))
		var seen events
		got, err := r.client(st, &Options{Observe: seen.observe}).Takeover(r.Context(), "jobs/one", ByHand{Note: "x"})
		if err != nil {
			r.Fatal(err)
		}
		if rec := r.record("jobs/one"); rec.Terms != 1 || rec.Token != got.Deed.Token {
			r.Errorf("%d terms, token %d; the deed has %d", rec.Terms, rec.Token, got.Deed.Token)
		}
		if len(seen.of(EventUnknown)) != 3 || len(seen.of(EventResolved)) != 1 {
			r.Errorf("%d unknown outcomes, %d resolved", len(seen.of(EventUnknown)), len(seen.of(EventResolved)))
		}
	})
}

// TestTheFenceIsRaisedAtTheGuardsOfTheLastHolder: also for a holder that came
// between reading the record and the act.
func TestTheFenceIsRaisedAtTheGuardsOfTheLastHolder(t *testing.T) {
	inBubble(t, func(r *rig) {
		first := r.acquire(r.client(nil, nil), "jobs/one", nil)
		near := &fencedTarget{name: "crofttest://between"}
		targets.Store("between", near)
		tap := &tap{Store: r.st}
		tap.set(func(ctx context.Context, _ []tenure.Request) []store.Answer {
			tap.set(nil)
			if err := first.Release(ctx); err != nil {
				r.Error(err)
			}
			r.acquire(r.client(nil, nil), "jobs/one", &LeaseOptions{Guards: []guard.Guard{near}})
			return nil
		})
		got, err := r.client(tap, nil).Takeover(r.Context(), "jobs/one", ByHand{Note: "x", Raise: trusted})
		if err != nil {
			r.Fatal(err)
		}
		if len(got.Raised) != 1 || got.Raised[0] != (Raise{Target: "crofttest://between"}) || r.mark(near).Token != got.Record.Token {
			r.Errorf("raised %+v, the mark is at %d; want the guard of the last holder at %d", got.Raised, r.mark(near).Token, got.Record.Token)
		}
	})
}

// TestLaw6AnOperatorsActIsDoneEvenIfOvertaken: its answer was lost, and another
// was granted the key before the client asked again. The act was done
// nevertheless, and the fence is raised with its own token.
func TestLaw6AnOperatorsActIsDoneEvenIfOvertaken(t *testing.T) {
	for _, history := range []bool{true, false} { // whether the refusal brings the history
		inBubble(t, func(r *rig) {
			target := &fencedTarget{name: "crofttest://overtaken"}
			targets.Store("overtaken", target)
			l := r.acquire(r.client(nil, nil), "jobs/one", &LeaseOptions{Guards: []guard.Guard{target}})
			var next *Lease
			tap := &tap{Store: r.st}
			tap.set(func(ctx context.Context, batch []tenure.Request) []store.Answer {
				answers := r.st.Apply(ctx, batch)
				if next == nil {
					next = r.acquire(r.client(nil, nil), "jobs/one", nil)
					return store.Failed(len(batch), errDown)
				}
				var refusal *tenure.NotOwnedError
				if errors.As(answers[0].Err, &refusal) && !history {
					refusal.Record.History = nil
				}
				return answers
			})
			got, err := r.client(tap, nil).Revoke(r.Context(), "jobs/one", ByHand{Actor: "ana", Note: "wrong input", Raise: trusted})
			if err != nil {
				r.Fatalf("%v, though it was done", err)
			}
			if got.Deed.Token <= l.Token() || got.Deed.Token >= next.Token() || got.Record.Token != got.Deed.Token || got.Record.Stamp() != got.Deed.Stamp() {
				r.Errorf("deed %d, record %d; it was between %d and %d", got.Deed.Token, got.Record.Token, l.Token(), next.Token())
			}
			if got.Record.Actor != "ana" || got.Record.Ended != tenure.EndSuperseded || got.Record.Cause != tenure.Cancelled {
				r.Errorf("%+v", got.Record)
			}
			if len(got.Raised) != 1 || got.Raised[0] != (Raise{Target: target.name}) || r.mark(target).Token != got.Deed.Token {
				r.Errorf("raised %+v, the mark is at %d", got.Raised, r.mark(target).Token)
			}
		})
	}
}

// TestGuardsThatNobodyRemembersAreReported: the answer to an act was lost. One
// owner came before the act, and another after it.
func TestGuardsThatNobodyRemembersAreReported(t *testing.T) {
	inBubble(t, func(r *rig) {
		l := r.acquire(r.client(nil, nil), "jobs/one", nil)
		var between *Lease
		tap := &tap{Store: r.st}
		tap.set(func(ctx context.Context, batch []tenure.Request) []store.Answer {
			if between != nil {
				return r.st.Apply(ctx, batch)
			}
			if err := l.Release(ctx); err != nil {
				r.Error(err)
			}
			between = r.acquire(r.client(nil, nil), "jobs/one", &LeaseOptions{Guards: []guard.Guard{&fencedTarget{name: "crofttest://between"}}})
			r.st.Apply(ctx, batch)
			r.acquire(r.client(nil, nil), "jobs/one", nil)
			return store.Failed(len(batch), errDown)
		})
		got, err := r.client(tap, nil).Revoke(r.Context(), "jobs/one", ByHand{Note: "wrong input"})
		if !errors.Is(err, ErrUnfenced) || got == nil || !strings.Contains(err.Error(), fmt.Sprintf("guards of token %d", between.Token())) {
			r.Errorf("%+v, %v; want it done, and the guards of token %d reported", got, err, between.Token())
		}
	})
}

// TestAnOperatorIsNotKeptWaitingForTheHistory: reading it after an act was
// overtaken takes at most CallTimeout, like every call of the store.
func TestAnOperatorIsNotKeptWaitingForTheHistory(t *testing.T) {
	inBubble(t, func(r *rig) {
		st := &mute{tap: tap{Store: r.st}}
		st.set(func(context.Context, []tenure.Request) []store.Answer {
			st.hangs.Store(true)
			return []store.Answer{{Err: &tenure.NotOwnedError{Why: tenure.WhySuperseded}}}
		})
		start := time.Now()
		if _, err := r.client(st, nil).Revoke(r.Context(), "jobs/one", ByHand{Note: "x"}); !errors.Is(err, ErrNotOwned) {
			r.Errorf("%v, want the refusal", err)
		}
		wantAfter(r, start, 5*time.Second, 5*time.Second)
	})
}

// mute is a store whose reads can be made to hang.
type mute struct {
	tap
	hangs atomic.Bool
}

func (s *mute) Get(ctx context.Context, key string) (tenure.Record, error) {
	if s.hangs.Load() {
		<-ctx.Done()
		return tenure.Record{}, ctx.Err()
	}
	return s.tap.Get(ctx, key)
}

// TestAFenceThatIsHigherIsUp: the next holder may raise the fence before the
// operator's act does.
func TestAFenceThatIsHigherIsUp(t *testing.T) {
	inBubble(t, func(r *rig) {
		target := &fencedTarget{name: "crofttest://higher"}
		targets.Store("higher", target)
		r.acquire(r.client(nil, nil), "jobs/one", &LeaseOptions{Guards: []guard.Guard{target}})
		tap := &tap{Store: r.st}
		tap.set(func(ctx context.Context, batch []tenure.Request) []store.Answer {
			answers := r.st.Apply(ctx, batch)
			r.acquire(r.client(nil, nil), "jobs/one", &LeaseOptions{Guards: []guard.Guard{target}})
			return answers
		})
		got, err := r.client(tap, nil).Revoke(r.Context(), "jobs/one", ByHand{Note: "x", Raise: trusted})
		if err != nil || len(got.Raised) != 1 || got.Raised[0].Err != nil {
			r.Errorf("raised %+v, %v; want it to be up", got.Raised, err)
		}
	})
}

// TestByDeed: another process renews, reports and releases. If the lease is not
// its own, the refusal names the owner.
func TestByDeed(t *testing.T) {
	inBubble(t, func(r *rig) {
		holder := r.client(nil, nil)
		l := r.acquire(holder, "jobs/one", nil)
		c := r.client(nil, nil)
		time.Sleep(5 * time.Second)
		rec, err := c.Renew(r.Context(), l.Deed(), false)
		if err != nil || time.Until(rec.Deadline) != time.Minute {
			r.Errorf("renewed until %s from now, %v", time.Until(rec.Deadline), err)
		}
		if rec, err = c.Report(r.Context(), l.Deed(), "half way"); err != nil || rec.Progress != "half way" {
			r.Errorf("%q, %v", rec.Progress, err)
		}
		for range 2 {
			if rec, err = c.Release(r.Context(), l.Deed(), true); err != nil || rec.Ended != tenure.EndFailed {
				r.Errorf("%q, %v", rec.Ended, err)
			}
		}
		next := r.acquire(c, "jobs/one", nil)
		rec, err = c.Renew(r.Context(), l.Deed(), true)
		if !errors.Is(err, ErrNotOwned) || rec.Token != next.Token() {
			r.Errorf("renewing what is over: token %d, %v; want to be told who has it", rec.Token, err)
		}
		r.wantLost(l, Released)
	})
}

// TestLaw6ByDeedIsRepeatedUntilKnown: and given up within its bound.
func TestLaw6ByDeedIsRepeatedUntilKnown(t *testing.T) {
	inBubble(t, func(r *rig) {
		l := r.acquire(r.client(nil, nil), "jobs/one", nil)
		st := storetest.DropReply(r.st, storetest.First(4, nil))
		if _, err := r.client(st, nil).Release(r.Context(), l.Deed(), false); err != nil {
			r.Errorf("released with its replies lost: %v", err)
		}
		tap := &tap{Store: r.st}
		tap.set(down)
		c := r.client(tap, nil)
		start := time.Now()
		_, err := c.Renew(r.Context(), l.Deed(), false)
		if !errors.Is(err, ErrUnknown) || !errors.Is(err, errDown) {
			r.Errorf("%v, want unknown, and why", err)
		}
		wantAfter(r, start, 10*time.Second, 10*time.Second)
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		start = time.Now()
		if _, err = c.Renew(ctx, l.Deed(), false); !errors.Is(err, ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			r.Errorf("%v, want unknown, and the end of the context", err)
		}
		wantAfter(r, start, time.Second, time.Second)
		if _, err := c.Renew(r.Context(), tenure.Deed{}, false); !errors.Is(err, ErrInvalid) {
			r.Errorf("%v, want invalid", err)
		}
	})
}

// TestTheErrorTellsTheFaultNotTheTimeout: the last copy of a request fails
// because the caller's time is up. The reason why the earlier copies failed
// says more.
func TestTheErrorTellsTheFaultNotTheTimeout(t *testing.T) {
	inBubble(t, func(r *rig) {
		refused, asked := errors.New("connection refused"), 0
		tap := &tap{Store: r.st}
		tap.set(func(ctx context.Context, batch []tenure.Request) []store.Answer {
			if asked++; asked == 1 {
				return []store.Answer{{Err: store.Unknown(refused)}}
			}
			<-ctx.Done()
			return []store.Answer{{Err: store.Unknown(ctx.Err())}}
		})
		ctx, cancel := context.WithTimeout(r.Context(), 300*time.Millisecond)
		defer cancel()
		_, err := r.client(tap, nil).Renew(ctx, tenure.Deed{Key: "jobs/one", Token: 1, Secret: tenure.NewSecret(), TTL: time.Minute}, false)
		if !errors.Is(err, refused) || !errors.Is(err, ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			r.Errorf("renewing: %v, want unknown, why, and that time was up", err)
		}
	})
}
