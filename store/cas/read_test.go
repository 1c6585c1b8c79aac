package cas_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/cas"
	"github.com/croft-dev/croft/tenure"
)

func listed(t *testing.T, st store.Store, prefix string) (keys []string, err error) {
	t.Helper()
	for rec, failed := range st.List(t.Context(), prefix) {
		if err != nil {
			t.Errorf("something comes after the error: %+v, %v", rec, failed)
		}
		if err = failed; err == nil {
			keys = append(keys, rec.Key)
		}
	}
	return keys, err
}

// TestDamageHidesNoOtherRecord: a listing yields the sound records, in order,
// and then the error about the damaged one.
func TestDamageHidesNoOtherRecord(t *testing.T) {
	reg := newRegister()
	st := reg.open(nil)
	must(t, st, acquire("c"), acquire("a"), acquire("b"), acquire("z"))
	rec := reg.get("b")
	rec.History = nil
	reg.records["b"] = rec
	keys, err := listed(t, st, "")
	if !slices.Equal(keys, []string{"a", "c", "z"}) || !errors.Is(err, cas.ErrDamaged) || !errors.Is(err, store.ErrUnknown) {
		t.Errorf("listed %q, then %v", keys, err)
	}
	// A listing of other keys does not fail.
	if keys, err = listed(t, st, "z"); !slices.Equal(keys, []string{"z"}) || err != nil {
		t.Errorf("listed %q, then %v", keys, err)
	}
}

// TestABrokenScanIsReported: the error comes after the records that the scan
// found.
func TestABrokenScanIsReported(t *testing.T) {
	reg := newRegister()
	st := reg.open(nil)
	must(t, st, acquire("a"))
	reg.scanErr = errBroken
	keys, err := listed(t, st, "")
	if !slices.Equal(keys, []string{"a"}) || !errors.Is(err, errBroken) || !errors.Is(err, store.ErrUnknown) {
		t.Errorf("listed %q, then %v", keys, err)
	}
	if _, err := st.Sweep(t.Context()); !errors.Is(err, errBroken) {
		t.Errorf("Sweep: %v", err)
	}
}

// TestAKeyMetTwiceIsListedOnce: a scan may meet a key again that changes
// meanwhile. The listing has only the newer record.
func TestAKeyMetTwiceIsListedOnce(t *testing.T) {
	reg := newRegister()
	st := reg.open(nil)
	mine := acquire("a")
	must(t, st, mine)
	reg.scanned = []tenure.Record{reg.get("a"), {}}
	must(t, st, then(tenure.Release, mine), acquire("a"))
	var records []tenure.Record
	for rec, err := range st.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, rec)
	}
	if len(records) != 1 || records[0].Token != reg.get("a").Token {
		t.Errorf("listed %+v", records)
	}
}

// TestAListingEndsWithItsContext: also if the context ends between two records.
func TestAListingEndsWithItsContext(t *testing.T) {
	st := newRegister().open(nil)
	must(t, st, acquire("a"), acquire("b"), acquire("c"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got []error
	for _, err := range st.List(ctx, "") {
		got = append(got, err)
		cancel()
	}
	if len(got) != 2 || got[0] != nil || !errors.Is(got[1], context.Canceled) {
		t.Errorf("%v, want one record and then the context's end", got)
	}
}

// TestWatchAndExamineAskTheRegister: a store can watch and examine if its
// register can. Otherwise the error says so.
func TestWatchAndExamineAskTheRegister(t *testing.T) {
	plain := newRegister().open(nil)
	if _, err := plain.Watch(t.Context(), "k"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Watch: %v", err)
	}
	if _, err := plain.Examine(t.Context()); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Examine: %v", err)
	}
	able := cas.New(&ableRegister{newRegister()}, nil)
	if c, err := able.Watch(t.Context(), "k"); err != nil || c == nil {
		t.Errorf("Watch: %v, %v", c, err)
	}
	if _, err := able.Watch(t.Context(), "a//b"); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("Watch of what is no key: %v", err)
	}
	if found, err := able.Examine(t.Context()); err != nil || len(found) != 1 {
		t.Errorf("Examine: %v, %v", found, err)
	}
}

type ableRegister struct{ *register }

func (r *ableRegister) Watch(context.Context, string) (<-chan struct{}, error) {
	return make(chan struct{}), nil
}

func (r *ableRegister) Examine(context.Context) ([]store.Finding, error) {
	return []store.Finding{{Check: "all", Level: store.OK}}, nil
}

// old fills a register with records. A sweep may drop a, b and c, but not d.
func old(t *testing.T, reg *register, st store.Store, between ...func()) {
	t.Helper()
	a, b, c := acquire("a"), acquire("b"), acquire("c")
	must(t, st, a, b, c, then(tenure.Release, a), then(tenure.Release, b))
	for _, do := range between {
		do()
	}
	reg.advance(25 * time.Hour)
	must(t, st, acquire("d"))
}

// TestASweepKeepsChangedAndDamagedRecords: a record that changes meanwhile
// stays. A damaged record is reported after the others are dropped.
func TestASweepKeepsChangedAndDamagedRecords(t *testing.T) {
	reg := newRegister()
	st := reg.open(nil)
	old(t, reg, st)
	rec := reg.get("c")
	rec.History = nil
	reg.records["c"] = rec
	reg.onDrop = func(_ context.Context, key string) error {
		if key == "b" {
			must(t, st, acquire("b"))
		}
		return nil
	}
	dropped, err := st.Sweep(t.Context())
	if dropped != 1 || !errors.Is(err, cas.ErrDamaged) {
		t.Errorf("dropped %d, %v", dropped, err)
	}
	if !reg.get("a").IsZero() || reg.get("b").IsZero() || reg.get("c").IsZero() || reg.get("d").IsZero() {
		t.Errorf("left are %+v", reg.records)
	}
	reg.onDrop = func(context.Context, string) error { return errBroken }
	reg.advance(25 * time.Hour)
	if _, err := st.Sweep(t.Context()); !errors.Is(err, errBroken) {
		t.Errorf("Sweep: %v", err)
	}
}

// TestGrantsSweepNowAndThen: they do so in the background, and never after
// Close.
func TestGrantsSweepNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := newRegister()
		st := reg.open(&cas.Options{SweepEvery: 1})
		// There is one sweep at a time. The sweeps of the first grants must be
		// over, or that of the last grant does not begin.
		old(t, reg, st, synctest.Wait)
		synctest.Wait()
		if !reg.get("a").IsZero() || !reg.get("b").IsZero() || !reg.get("c").IsZero() || reg.get("d").IsZero() {
			t.Errorf("after a grant there are %+v", reg.records)
		}
		// Close ends a sweep that is under way, and waits for it.
		reg.advance(25 * time.Hour)
		entered, ended := make(chan struct{}), false
		reg.onDrop = func(ctx context.Context, _ string) error {
			close(entered)
			<-ctx.Done()
			ended = true
			return ctx.Err()
		}
		must(t, st, acquire("e"))
		<-entered
		if err := st.Close(); err != nil || !ended {
			t.Errorf("Close: %v, the sweep ended: %t", err, ended)
		}
	})
}

// TestTheRegisterIsClosedOnce: the register is closed once. Requests after that
// have an unknown outcome, and are not refused.
func TestTheRegisterIsClosedOnce(t *testing.T) {
	reg := newRegister()
	st := reg.open(nil)
	for range 3 {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}
	if reg.closed != 1 {
		t.Errorf("the register was closed %d times", reg.closed)
	}
	if a := one(t.Context(), st, acquire("k")); !errors.Is(a.Err, cas.ErrClosed) || !errors.Is(a.Err, store.ErrUnknown) {
		t.Errorf("Apply: %v", a.Err)
	}
	if _, err := st.Get(t.Context(), "k"); !errors.Is(err, cas.ErrClosed) {
		t.Errorf("Get: %v", err)
	}
	if _, err := listed(t, st, ""); !errors.Is(err, cas.ErrClosed) {
		t.Errorf("List: %v", err)
	}
}
