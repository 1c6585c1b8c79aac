package refusals_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"testing"
	"time"

	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/refusals"
	"github.com/croft-dev/croft/store/storetest"
	"github.com/croft-dev/croft/tenure"
)

// lean is a store whose listings leave out histories, as most do. It counts the
// calls of Get, and calls one record damaged.
type lean struct {
	*mem.Store
	gets    atomic.Int32
	damaged string
}

func (l *lean) damage() error { return fmt.Errorf("%w: %s", store.ErrDamaged, l.damaged) }

func (l *lean) Get(ctx context.Context, key string) (tenure.Record, error) {
	l.gets.Add(1)
	if key == l.damaged {
		return tenure.Record{}, store.Unknown(l.damage())
	}
	return l.Store.Get(ctx, key)
}

func (l *lean) List(ctx context.Context, prefix string) iter.Seq2[tenure.Record, error] {
	return func(yield func(tenure.Record, error) bool) {
		for rec, err := range l.Store.List(ctx, prefix) {
			if rec.History = nil; err == nil && rec.Key == l.damaged {
				continue
			}
			if !yield(rec, err) || err != nil {
				return
			}
		}
		if l.damaged != "" {
			yield(tenure.Record{}, store.Unknown(l.damage()))
		}
	}
}

// note records a refusal of ann on a key, as recorders do.
func (l *lean) note(t *testing.T, root, namespace, key string) {
	t.Helper()
	a := l.Apply(t.Context(), []tenure.Request{{
		Verb: tenure.Revoke, Key: root + "/" + namespace, Secret: tenure.NewSecret(), Actor: "ann",
		Note: fmt.Sprintf(`{"act":"write","code":"stale","key":%q,"token":7}`, namespace+"/"+key),
	}})[0]
	if a.Err != nil {
		t.Fatal(a.Err)
	}
}

// TestReadAsksTheStoreSoManyTimes: anybody who may note refusals can do so in
// any number of namespaces. Each has at least its last refusal, and those that
// came last have all of theirs.
func TestReadAsksTheStoreSoManyTimes(t *testing.T) {
	t.Parallel()
	const namespaces, most = 2000, 256
	clk := storetest.NewClock()
	st := &lean{Store: mem.New(&mem.Options{Now: clk.Now})}
	var begun, middle time.Time
	for n := range namespaces {
		if n == namespaces-10 {
			middle = clk.Now()
		}
		for _, key := range []string{"first", "last"} {
			clk.Advance(time.Millisecond)
			st.note(t, "croft.refused", fmt.Sprintf("n%d", n), key)
		}
	}
	for what, c := range map[string]struct {
		since        time.Time
		gets, answer int
	}{
		"all":           {begun, most, namespaces + most},
		"the last ones": {middle, 10, 20},
		"none":          {clk.Now(), 0, 0},
	} {
		st.gets.Store(0)
		all, err := refusals.ReadSince(t.Context(), st, "", c.since)
		if err != nil || len(all) != c.answer || int(st.gets.Load()) != c.gets {
			t.Errorf("%s: %d refusals, %v, and %d records were asked for; want %d and %d",
				what, len(all), err, st.gets.Load(), c.answer, c.gets)
		}
	}
	all, err := refusals.Read(t.Context(), st, "")
	if err != nil || all[len(all)-1].Key != fmt.Sprintf("n%d/last", namespaces-1) || all[0].Key != "n0/last" {
		t.Errorf("%+v to %+v, %v", all[0], all[len(all)-1], err)
	}
}

// TestADamagedRecordHidesNoOtherRefusals, neither of other namespaces nor of
// other kinds.
func TestADamagedRecordHidesNoOtherRefusals(t *testing.T) {
	t.Parallel()
	st := &lean{Store: mem.New(nil), damaged: "croft.observed/b"}
	for _, namespace := range []string{"a", "b", "c"} {
		st.note(t, "croft.refused", namespace, "k")
		st.note(t, "croft.observed", namespace, "k")
	}
	for prefix, want := range map[string]int{"": 5, "b/": 1, "c/": 2} {
		all, err := refusals.Read(t.Context(), st, prefix)
		if len(all) != want || errors.Is(err, store.ErrDamaged) != (prefix != "c/") {
			t.Errorf("below %q: %d refusals, %v; want %d", prefix, len(all), err, want)
		}
	}
}
