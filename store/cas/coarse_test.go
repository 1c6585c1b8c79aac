package cas_test

import (
	"context"
	"errors"
	"iter"
	"testing"
	"time"

	"github.com/croft-dev/croft/store/cas"
	"github.com/croft-dev/croft/tenure"
)

// coarse is a register whose clock may be slow by up to grain.
type coarse struct {
	*register
	grain time.Duration
}

func (c *coarse) Load(ctx context.Context, key string) (cas.Entry, error) {
	held, err := c.register.Load(ctx, key)
	held.Latest = held.Now.Add(c.grain)
	return held, err
}

// TestACoarseClockNeverShortensALease: a grant lasts from the latest possible
// time of the grant. It is over when its deadline has passed at the earliest
// possible time.
func TestACoarseClockNeverShortensALease(t *testing.T) {
	reg := &coarse{newRegister(), 2 * time.Second}
	st := cas.New(reg, &cas.Options{SweepEvery: -1})
	began := reg.now
	mine := acquire("k")
	a := one(t.Context(), st, mine)
	if want := began.Add(2 * time.Second); a.Err != nil || !a.Now.Equal(want) || !a.Record.Deadline.Equal(want.Add(mine.TTL)) {
		t.Fatalf("granted at %s until %s, %v; it may have been %s", a.Now, a.Record.Deadline, a.Err, want)
	}
	// A holder that lost its reply asks again. The answer must not promise more
	// time than is left at the latest possible time.
	reg.advance(time.Second)
	if a := one(t.Context(), st, mine); a.Err != nil || !a.Now.Equal(reg.now.Add(2*time.Second)) {
		t.Errorf("asked again: %s are left, %v; it may be %s already", a.Record.Deadline.Sub(a.Now), a.Err, reg.now.Add(2*time.Second))
	}
	reg.advance(mine.TTL + time.Second - time.Microsecond)
	var held *tenure.HeldError
	other := acquire("k")
	if a := one(t.Context(), st, other); !errors.As(a.Err, &held) || !a.Now.Equal(reg.now) {
		t.Errorf("just before the deadline, at the earliest: %v", a.Err)
	}
	// The lease is over at the latest possible time, so its holder must not
	// count on it.
	var over *tenure.NotOwnedError
	if a := one(t.Context(), st, then(tenure.Renew, mine)); !errors.As(a.Err, &over) || over.Why != tenure.WhyExpired {
		t.Errorf("renewed when the deadline may have passed: %v", a.Err)
	}
	reg.advance(time.Microsecond)
	must(t, st, other)
}

// recalling is a register that remembers one entry, right or wrong.
type recalling struct {
	*register
	known map[string]cas.Entry
	loads int
}

func (r *recalling) Load(ctx context.Context, key string) (cas.Entry, error) {
	r.loads++
	return r.register.Load(ctx, key)
}

func (r *recalling) Recall(key string) (cas.Entry, bool) {
	held, ok := r.known[key]
	return held, ok
}

// TestARecalledRecordIsNotReadAgain: a recalled entry saves a read, and it
// decides only what a swap then confirms.
func TestARecalledRecordIsNotReadAgain(t *testing.T) {
	reg := &recalling{register: newRegister(), known: map[string]cas.Entry{}}
	st := cas.New(reg, &cas.Options{SweepEvery: -1})
	mine := acquire("k")
	must(t, st, mine)
	remember := func() {
		held, _ := reg.register.Load(t.Context(), "k")
		reg.known["k"] = held
	}
	remember()
	reg.loads = 0
	must(t, st, then(tenure.Renew, mine))
	if reg.loads != 0 {
		t.Errorf("a renewal of what is recalled took %d reads", reg.loads)
	}
	// The recalled entry is now out of date. The swap fails, and the store
	// reads the key.
	must(t, st, then(tenure.Release, mine))
	if rec := reg.get("k"); reg.loads != 1 || rec.State != tenure.Free {
		t.Errorf("a release by an entry that was out of date: %d reads, then %s", reg.loads, rec.State)
	}
	// A refusal because of it would be wrong: the key is free.
	if next := reg.known["k"].Record; next.State != tenure.Held {
		t.Fatal("the test's own memory has changed")
	}
	must(t, st, acquire("k"))
	// An answer without a change would be wrong, too.
	other := acquire("k")
	reg.known["k"] = cas.Entry{Record: mustApply(t, other, reg.now), Version: "no such", Now: reg.now}
	if a := one(t.Context(), st, other); !errors.Is(a.Err, tenure.ErrHeld) {
		t.Errorf("a grant that is only recalled: %v, want held by another", a.Err)
	}
}

func mustApply(t *testing.T, req tenure.Request, now time.Time) tenure.Record {
	t.Helper()
	rec, _, err := tenure.Apply(tenure.Record{}, req, now)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// lately is a register that knows when its records were written.
type lately struct {
	*register
	before time.Time
}

func (l *lately) ScanOld(ctx context.Context, before time.Time) iter.Seq2[cas.Entry, error] {
	l.before = before
	return l.Scan(ctx)
}

// TestASweepReadsOnlyWhatIsOldEnough: it does so if the register can tell.
func TestASweepReadsOnlyWhatIsOldEnough(t *testing.T) {
	reg := &lately{register: newRegister()}
	st := cas.New(reg, &cas.Options{SweepEvery: -1, Retention: time.Hour})
	mine := acquire("k")
	must(t, st, mine, then(tenure.Release, mine))
	reg.advance(time.Hour)
	n, err := st.Sweep(t.Context())
	if err != nil || n != 1 || !reg.before.Equal(reg.now.Add(-time.Hour)) {
		t.Errorf("swept %d, %v; asked for what was written before %s at %s", n, err, reg.before, reg.now)
	}
}
