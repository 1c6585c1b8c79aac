package cas_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/cas"
	"github.com/croft-dev/croft/tenure"
)

var errBroken = errors.New("broken")

// TestAHangingRegisterDoesNotHoldApply: Apply returns when the context ends,
// with the answers that it has by then.
func TestAHangingRegisterDoesNotHoldApply(t *testing.T) {
	for _, step := range []string{"load", "swap"} {
		t.Run(step, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reg := newRegister()
				release := make(chan struct{})
				hang := func(key string) error {
					if key == "hangs" {
						<-release // even if the context has ended
					}
					return nil
				}
				if step == "load" {
					reg.onLoad = func(_ context.Context, key string) error { return hang(key) }
				} else {
					reg.onSwap = func(_ context.Context, next tenure.Record) error { return hang(next.Key) }
				}
				st := reg.open(nil)
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				began := time.Now()
				answers := st.Apply(ctx, []tenure.Request{acquire("hangs"), acquire("works"), acquire("hangs")})
				if took := time.Since(began); took != 5*time.Second {
					t.Errorf("it took %s, the context lasted 5s", took)
				}
				for _, i := range []int{0, 2} {
					if !errors.Is(answers[i].Err, store.ErrUnknown) || !errors.Is(answers[i].Err, context.DeadlineExceeded) {
						t.Errorf("request %d on the key that hangs: %v, want unknown for the deadline", i, answers[i].Err)
					}
				}
				if answers[1].Err != nil {
					t.Errorf("the key that does not hang: %v", answers[1].Err)
				}
				close(release)
				synctest.Wait()
				// The request under way has taken effect meanwhile. The one
				// that had not begun has not.
				if rec := reg.get("hangs"); (rec.Terms == 1) != (step == "swap") {
					t.Errorf("%d grants after the context had ended", rec.Terms)
				}
			})
		})
	}
}

// TestNothingBeginsAfterTheContextHasEnded: the store does not ask the register
// for answers that nobody waits for.
func TestNothingBeginsAfterTheContextHasEnded(t *testing.T) {
	reg := newRegister()
	reg.onLoad = func(context.Context, string) error { t.Error("the register was asked"); return nil }
	why := errors.New("the machine is going down")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	bad := acquire("")
	answers := reg.open(nil).Apply(ctx, []tenure.Request{acquire("a"), bad, acquire("b")})
	for _, i := range []int{0, 2} {
		for _, want := range []error{store.ErrUnknown, context.Canceled, why} {
			if !errors.Is(answers[i].Err, want) {
				t.Errorf("answer %d is %v, want it to match %v", i, answers[i].Err, want)
			}
		}
	}
	if !errors.Is(answers[1].Err, fence.ErrInvalid) {
		t.Errorf("the invalid request: %v", answers[1].Err)
	}
}

// TestInvalidRequestsNeverReachTheRegister: the store answers them itself.
func TestInvalidRequestsNeverReachTheRegister(t *testing.T) {
	reg := newRegister()
	reg.onLoad = func(context.Context, string) error { t.Error("the register was asked"); return nil }
	noOwner := acquire("k")
	noOwner.Owner = ""
	for _, a := range reg.open(nil).Apply(t.Context(), []tenure.Request{{}, acquire("a//b"), noOwner}) {
		if !errors.Is(a.Err, fence.ErrInvalid) || errors.Is(a.Err, store.ErrUnknown) {
			t.Errorf("%v, want invalid and nothing else", a.Err)
		}
	}
}

// TestConflictsAreTriedAgain: the store tries until a swap succeeds.
func TestConflictsAreTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := newRegister()
		left := 20
		reg.onSwap = func(context.Context, tenure.Record) error {
			if left--; left >= 0 {
				return fmt.Errorf("at the third version: %w", cas.ErrConflict)
			}
			return nil
		}
		must(t, reg.open(nil), acquire("k"))
	})
}

// TestConflictsEndWithTheContext: if every swap fails, the store stops when the
// context ends, and it pauses between its tries.
func TestConflictsEndWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := newRegister()
		tries := 0
		reg.onSwap = func(context.Context, tenure.Record) error { tries++; return cas.ErrConflict }
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		a := one(ctx, reg.open(nil), acquire("k"))
		if !errors.Is(a.Err, store.ErrUnknown) || !errors.Is(a.Err, context.DeadlineExceeded) {
			t.Errorf("%v, want unknown for the deadline", a.Err)
		}
		synctest.Wait()
		if tries < 10 || tries > 5000 {
			t.Errorf("%d tries in 10s", tries)
		}
	})
}

// TestALostRaceIsDecidedAgain: a request that loses a swap is decided again,
// by the record that is there then.
func TestALostRaceIsDecidedAgain(t *testing.T) {
	reg := newRegister()
	st := reg.open(nil)
	mine, other := acquire("k"), acquire("k")
	var once atomic.Bool
	reg.onSwap = func(context.Context, tenure.Record) error {
		if once.CompareAndSwap(false, true) {
			must(t, st, other)
		}
		return nil
	}
	a := one(t.Context(), st, mine)
	var held *tenure.HeldError
	if !errors.As(a.Err, &held) || held.Record.Grant != other.Secret.Grant() {
		t.Errorf("%v, want it held by the one who was faster", a.Err)
	}
}

// TestAnAmbiguousSwapIsUnknown: after a swap with an unclear result the store
// does not try again, whether it took effect or not. The caller asks again, and
// that settles it.
func TestAnAmbiguousSwapIsUnknown(t *testing.T) {
	for _, took := range []bool{false, true} {
		reg := newRegister()
		swaps := 0
		fail := func(tenure.Record) error {
			if swaps++; swaps == 1 {
				return errBroken
			}
			return nil
		}
		if took {
			reg.afterSwap = fail
		} else {
			reg.onSwap = func(_ context.Context, next tenure.Record) error { return fail(next) }
		}
		st := reg.open(nil)
		mine := acquire("k")
		a := one(t.Context(), st, mine)
		if !errors.Is(a.Err, store.ErrUnknown) || !errors.Is(a.Err, errBroken) || !a.Record.IsZero() || swaps != 1 {
			t.Errorf("took effect %t: %v with %+v after %d swaps, want unknown, the reason, no record, one swap", took, a.Err, a.Record, swaps)
		}
		must(t, st, mine)
		if rec := reg.get("k"); rec.Terms != 1 || rec.Grant != mine.Secret.Grant() {
			t.Errorf("took effect %t: asked again, and the key has had %d terms", took, rec.Terms)
		}
	}
}

// TestAnEclipsedRenewalIsUnknownAndNotRefused: a swap takes effect, its reply
// is lost, and another swap follows. The record still shows a grant or a
// release. It shows nothing of a renewal, so the store must not refuse the
// renewal as if it had never been made.
func TestAnEclipsedRenewalIsUnknownAndNotRefused(t *testing.T) {
	for verb, known := range map[tenure.Verb]bool{tenure.Acquire: true, tenure.Renew: false, tenure.Report: false, tenure.Checkpoint: false} {
		reg := newRegister()
		st, mine := reg.open(nil), acquire("k")
		if verb != tenure.Acquire {
			must(t, st, mine)
		}
		reg.afterSwap = func(rec tenure.Record) error {
			reg.afterSwap = nil
			hand := tenure.Request{Verb: tenure.Takeover, Key: "k", Secret: tenure.NewSecret(), Owner: "op", TTL: time.Minute, Actor: "op", Note: "test"}
			taken, _, err := tenure.Apply(rec, hand, reg.now)
			if err != nil {
				t.Error(err)
			}
			reg.put(taken)
			return cas.ErrEclipsed
		}
		req := tenure.Request{Verb: verb, Key: "k", Secret: mine.Secret}
		if verb == tenure.Acquire {
			req = mine
		}
		a := one(t.Context(), st, req)
		if errors.Is(a.Err, tenure.ErrNotOwned) != known || errors.Is(a.Err, store.ErrUnknown) == known {
			t.Errorf("%s: %v", verb, a.Err)
		}
		if a := one(t.Context(), st, req); !errors.Is(a.Err, tenure.ErrNotOwned) {
			t.Errorf("%s, asked again: %v", verb, a.Err)
		}
	}
}

// TestAFailedLoadIsUnknown: the error gives the reason.
func TestAFailedLoadIsUnknown(t *testing.T) {
	reg := newRegister()
	reg.onLoad = func(context.Context, string) error { return errBroken }
	st := reg.open(nil)
	if a := one(t.Context(), st, acquire("k")); !errors.Is(a.Err, store.ErrUnknown) || !errors.Is(a.Err, errBroken) {
		t.Errorf("Apply: %v", a.Err)
	}
	if _, err := st.Get(t.Context(), "k"); !errors.Is(err, store.ErrUnknown) || !errors.Is(err, errBroken) {
		t.Errorf("Get: %v", err)
	}
}

// TestDamageIsNamedAndLeftAlone: a damaged record decides nothing, and is not
// overwritten. The caller's input was good, so the error does not match
// ErrInvalid.
func TestDamageIsNamedAndLeftAlone(t *testing.T) {
	for name, damage := range map[string]func(rec *tenure.Record){
		"no history":    func(rec *tenure.Record) { rec.History = nil },
		"no token":      func(rec *tenure.Record) { rec.Token = 0 },
		"another's key": func(rec *tenure.Record) { rec.Key = "other" },
	} {
		t.Run(name, func(t *testing.T) {
			reg := newRegister()
			st := reg.open(nil)
			must(t, st, acquire("k"))
			rec := reg.get("k")
			damage(&rec)
			reg.mu.Lock()
			reg.records["k"] = rec
			reg.mu.Unlock()
			swaps := reg.swaps
			for _, verb := range []tenure.Verb{tenure.Acquire, tenure.Renew, tenure.Release, tenure.Takeover} {
				req := acquire("k")
				req.Verb, req.Actor, req.Note = verb, "olga", "why"
				a := one(t.Context(), st, req)
				if !errors.Is(a.Err, cas.ErrDamaged) || !errors.Is(a.Err, store.ErrUnknown) || errors.Is(a.Err, fence.ErrInvalid) {
					t.Errorf("%s: %v, want damaged, unknown, not invalid", verb, a.Err)
				}
			}
			if _, err := st.Get(t.Context(), "k"); !errors.Is(err, cas.ErrDamaged) {
				t.Errorf("Get: %v", err)
			}
			if reg.swaps != swaps {
				t.Error("something was written over it")
			}
		})
	}
}

// TestABatchRunsItsKeysSideBySide: as many at a time as Parallel says, and no
// more.
func TestABatchRunsItsKeysSideBySide(t *testing.T) {
	for _, c := range []struct{ parallel, keys, want int }{{0, 40, 16}, {3, 40, 3}, {8, 5, 5}} {
		synctest.Test(t, func(t *testing.T) {
			reg := newRegister()
			var at, most atomic.Int64
			reg.onLoad = func(context.Context, string) error {
				most.Store(max(most.Load(), at.Add(1)))
				time.Sleep(time.Second)
				at.Add(-1)
				return nil
			}
			var requests []tenure.Request
			for n := range c.keys {
				requests = append(requests, acquire(fmt.Sprint(n)))
			}
			must(t, reg.open(&cas.Options{Parallel: c.parallel, SweepEvery: -1}), requests...)
			if int(most.Load()) != c.want {
				t.Errorf("Parallel %d, %d keys: %d at a time, want %d", c.parallel, c.keys, most.Load(), c.want)
			}
		})
	}
}

// TestGrantsAndEndsAreDurable: grants and ends are durable, renewals and
// reports are not.
func TestGrantsAndEndsAreDurable(t *testing.T) {
	reg := newRegister()
	mine, hand := acquire("k"), acquire("k")
	hand.Verb, hand.Actor, hand.Note = tenure.Takeover, "olga", "why"
	must(t, reg.open(nil), mine, then(tenure.Renew, mine), then(tenure.Report, mine), then(tenure.Release, mine), hand)
	if want := []bool{true, false, false, true, true}; !slices.Equal(reg.durable, want) {
		t.Errorf("durable was %v, want %v", reg.durable, want)
	}
}

// TestTheCallerMayReuseItsRequests: workers that outlive Apply use a copy of
// the requests.
func TestTheCallerMayReuseItsRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := newRegister()
		release := make(chan struct{})
		reg.onLoad = func(context.Context, string) error { <-release; return nil }
		requests := []tenure.Request{acquire("k"), acquire("k")}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		reg.open(nil).Apply(ctx, requests)
		close(release)
		requests[0].Key, requests[1].Key = "other", "other" // for the race detector
		synctest.Wait()
	})
}
