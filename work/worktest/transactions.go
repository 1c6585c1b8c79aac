package worktest

import (
	"errors"
	"time"

	"github.com/croft-dev/croft/internal/test/suite"
	"github.com/croft-dev/croft/work"
)

var errRollback = errors.New("rolled back on purpose")

func transactions() []check {
	in := func(name string, run func(t *trial)) check {
		return check{name, func(t *trial) {
			if t.Within != nil { // a ledger without transactions promises nothing here
				run(t)
			}
		}}
	}
	return []check{
		in("a committed transaction counts", func(t *trial) {
			add := added("q")
			c := claimOf("q")
			var h held
			t.within(nil, func(ops work.Operations) error {
				if a := t.apply(ops, add)[0]; a.Err != nil {
					return a.Err
				}
				got, err := ops.Claim(t.ctx, c)
				if err != nil || len(got) != 1 {
					t.Fatalf("a claim in the transaction that added the item got %d: %v", len(got), err)
				}
				h = held{got[0], c.Secret}
				if it, err := ops.Get(t.ctx, add.ID); err != nil || it.State != work.Running {
					t.Fatalf("the transaction reads %s, %v", it.State, err)
				}
				return nil
			})
			done := h.by(work.Complete)
			done.Result, done.Effects = []byte("result"), []work.Emission{{Name: "x"}}
			t.within(nil, func(ops work.Operations) error { return t.apply(ops, done)[0].Err })
			if it := t.get(add.ID); it.State != work.Done || string(it.Result) != "result" ||
				len(t.effectsOf(add.ID)) != 1 {
				t.Fatalf("after the commit it is %s with %d effects", it.State, len(t.effectsOf(add.ID)))
			}
		}),
		in("a rolled back transaction has not happened", func(t *trial) {
			h, add := t.running("q"), added("other")
			before := t.known(h.ID)
			done := h.by(work.Complete)
			done.Effects = []work.Emission{{Name: "x"}}
			t.within(errRollback, func(ops work.Operations) error {
				for _, a := range t.apply(ops, done, add) {
					if a.Err != nil {
						t.Fatalf("in the transaction: %v", a.Err)
					}
				}
				return errRollback
			})
			after := t.known(h.ID)
			if d := suite.Differ(before.item, after.item); d != "" || len(after.effects) > 0 {
				t.Fatalf("after the rollback: %s, %d effects", d, len(after.effects))
			}
			if !t.get(add.ID).IsZero() {
				t.Fatalf("an item that was rolled back is there")
			}
			if a := t.must(done); a.Repeated { // the caller sends the same request again
				t.Fatalf("a completion that was rolled back counts as done")
			}
		}),
		in("a claim that is rolled back gives the item back", func(t *trial) {
			t.must(added("q"))
			t.within(errRollback, func(ops work.Operations) error {
				if got, err := ops.Claim(t.ctx, claimOf("q")); err != nil || len(got) != 1 {
					t.Fatalf("got %d items: %v", len(got), err)
				}
				return errRollback
			})
			if h := t.claimed("q", long); h.Attempts != 1 {
				t.Fatalf("it is attempt %d", h.Attempts)
			}
		}),
		in("a refusal leaves the transaction usable", func(t *trial) {
			stale, h := t.running("stale"), t.running("q")
			t.must(hand(work.Cancel, stale.ID))
			t.within(nil, func(ops work.Operations) error {
				if a := t.apply(ops, stale.by(work.Complete))[0]; !errors.Is(a.Err, work.ErrStale) {
					t.Fatalf("a stale completion in a transaction: %v", a.Err)
				}
				if a := t.apply(ops, hand(work.Cancel, work.NewID()))[0]; !errors.Is(a.Err, work.ErrNotFound) {
					t.Fatalf("an unknown id in a transaction: %v", a.Err)
				}
				return t.apply(ops, h.by(work.Complete))[0].Err
			})
			if t.get(h.ID).State != work.Done || len(t.refusalsOf(stale.ID)) != 1 {
				t.Fatalf("after the commit: %s, %d refusals", t.get(h.ID).State, len(t.refusalsOf(stale.ID)))
			}
		}),
		in("an idempotency key that is taken leaves it usable, too", func(t *trial) {
			add := added("q")
			add.Unique = "once"
			t.must(add)
			other := added("q")
			other.Unique, other.Payload = "once", []byte("other")
			next := added("q")
			t.within(nil, func(ops work.Operations) error {
				if a := t.apply(ops, other)[0]; !errors.Is(a.Err, work.ErrConflict) {
					t.Fatalf("%v, want a conflict", a.Err)
				}
				return t.apply(ops, next)[0].Err
			})
			if t.get(next.ID).IsZero() {
				t.Fatalf("what was added after the conflict is not there")
			}
		}),
		in("the clock goes on in a transaction", func(t *trial) {
			h := t.running("q")
			t.within(nil, func(ops work.Operations) error {
				first := t.apply(ops, h.by(work.Heartbeat))[0]
				if t.Advance != nil {
					t.Advance(time.Second)
				} else {
					time.Sleep(2 * time.Millisecond)
				}
				second := t.apply(ops, h.by(work.Heartbeat))[0]
				if first.Err != nil || second.Err != nil || !second.Now.After(first.Now) {
					t.Fatalf("the clock stood still: %s, then %s (%v, %v)", first.Now, second.Now, first.Err,
						second.Err)
				}
				return nil
			})
		}),
	}
}

// within runs a transaction and checks the error with which it ends.
func (t *trial) within(want error, do func(work.Operations) error) {
	t.Helper()
	if err := t.Within(t.ctx, t.ledger, do); !errors.Is(err, want) {
		t.Fatalf("the transaction ended with %v, want %v", err, want)
	}
}
