package refusals_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/refusals"
	"github.com/croft-dev/croft/tenure"
)

// flaky is a store that can be away.
type flaky struct {
	*mem.Store
	down atomic.Bool
}

var errDown = store.Unknown(errors.New("the store is down"))

func (f *flaky) Get(ctx context.Context, key string) (tenure.Record, error) {
	if f.down.Load() {
		return tenure.Record{}, errDown
	}
	return f.Store.Get(ctx, key)
}

func (f *flaky) Apply(ctx context.Context, batch []tenure.Request) []store.Answer {
	if f.down.Load() {
		return store.Failed(len(batch), errDown)
	}
	return f.Store.Apply(ctx, batch)
}

// recorded runs a test with a recorder on a store that knows the key jobs/a.
// The stamp is that of ann, its owner.
func recorded(t *testing.T, script func(st *flaky, n *refusals.Recorder, ann fence.Stamp)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		st := &flaky{Store: mem.New(nil)}
		defer st.Close()
		a := st.Apply(t.Context(), []tenure.Request{{
			Verb: tenure.Acquire, Key: "jobs/a", Secret: tenure.NewSecret(), Owner: "ann", TTL: time.Minute,
		}})[0]
		if a.Err != nil {
			t.Fatal(a.Err)
		}
		n := refusals.NewRecorder(st, clock.NewProcess(), time.Minute)
		defer n.Close()
		script(st, n, a.Record.Stamp())
	})
}

// read returns what the store remembers, by kind.
func read(t *testing.T, st store.Store) map[refusals.Kind][]refusals.Refusal {
	t.Helper()
	all, err := refusals.Read(t.Context(), st, "")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[refusals.Kind][]refusals.Refusal{}
	for _, r := range all {
		kinds[r.Kind()] = append(kinds[r.Kind()], r)
	}
	return kinds
}

func stale(s fence.Stamp) error {
	return &fence.StaleError{Presented: s, Newest: fence.Mark{Key: s.Key, Token: s.Token + 1}}
}

func add(t *testing.T, n *refusals.Recorder, s fence.Stamp, admitted bool) {
	t.Helper()
	r, ok := refusals.Of(s, "out", stale(s))
	if !ok {
		t.Fatal("no refusal")
	}
	r.Admitted = admitted
	n.Add(r)
}

// TestObservedRefusalsDoNotPushOutRealOnes: a boundary that observes may note
// one every second, all night.
func TestObservedRefusalsDoNotPushOutRealOnes(t *testing.T) {
	recorded(t, func(st *flaky, n *refusals.Recorder, ann fence.Stamp) {
		start := time.Now()
		add(t, n, ann, false)
		const more = 3 * tenure.HistoryLen
		for range more {
			add(t, n, ann, true)
			time.Sleep(2 * time.Second)
		}
		found := read(t, st)
		if got := found[refusals.Refused]; len(got) != 1 || got[0].Admitted || got[0].Owner != "ann" {
			t.Errorf("refused: %+v", got)
		}
		observed := found[refusals.Observed]
		if len(observed) != tenure.HistoryLen || !observed[0].Admitted {
			t.Errorf("%d observed are remembered: %+v", len(observed), observed[0])
		}
		// The count goes on although the first notes are forgotten.
		sum := refusals.SumUp(observed)
		if sum.Count != more {
			t.Errorf("%d are counted, want %d", sum.Count, more)
		}
		if d := sum.Since.Sub(start); d.Abs() > 2*time.Second {
			t.Errorf("counted since %s after the first", d)
		}
	})
}

// TestMadeUpStampsDoNotPushOutRealRefusals: every client of a boundary can make
// up a stamp for each request.
func TestMadeUpStampsDoNotPushOutRealRefusals(t *testing.T) {
	recorded(t, func(st *flaky, n *refusals.Recorder, ann fence.Stamp) {
		add(t, n, ann, false)
		time.Sleep(2 * time.Second)
		const more = 3 * tenure.HistoryLen
		for i := range more {
			madeUp := fence.Stamp{Key: ann.Key, Token: ann.Token + fence.Token(i), Grant: tenure.NewSecret().Grant()}
			add(t, n, madeUp, false)
			time.Sleep(2 * time.Second)
		}
		count := map[string]int{}
		found := read(t, st)[refusals.Refused]
		for _, r := range found {
			count[r.Owner]++
		}
		if count["ann"] != 1 || count[""] != tenure.HistoryLen || len(count) != 2 {
			t.Errorf("remembered of each owner: %v", count)
		}
		if sum := refusals.SumUp(found); sum.Count != more+1 {
			t.Errorf("%d are counted, want %d", sum.Count, more+1)
		}
	})
}

// TestCountsGoOnAcrossProcesses: every run of croft write is a process.
func TestCountsGoOnAcrossProcesses(t *testing.T) {
	recorded(t, func(st *flaky, _ *refusals.Recorder, ann fence.Stamp) {
		const runs = 2 * tenure.HistoryLen
		for range runs {
			n := refusals.NewRecorder(st, clock.NewProcess(), time.Minute)
			add(t, n, ann, true)
			n.Close()
			time.Sleep(time.Minute)
		}
		if sum := refusals.SumUp(read(t, st)[refusals.Observed]); sum.Count != runs {
			t.Errorf("%d are counted, want %d", sum.Count, runs)
		}
	})
}

// TestUnsureDecisionsAreNotedWhenTheStoreIsBack: nobody can note them before.
// A refusal that comes meanwhile is forgotten, as always.
func TestUnsureDecisionsAreNotedWhenTheStoreIsBack(t *testing.T) {
	recorded(t, func(st *flaky, n *refusals.Recorder, ann fence.Stamp) {
		st.down.Store(true)
		for i := range 300 {
			r, _ := refusals.OfUnsure(ann, "http:a", i%3 > 0)
			n.Add(r)
			time.Sleep(time.Second)
		}
		add(t, n, ann, false)
		time.Sleep(time.Minute)
		st.down.Store(false)
		time.Sleep(time.Minute)
		found := read(t, st)
		counts := map[bool]int{}
		for _, r := range found[refusals.Unsure] {
			if r.Owner != "ann" || r.Key != "jobs/a" {
				t.Errorf("noted %+v", r)
			}
			counts[r.Admitted] += r.Count
		}
		if counts[true] != 200 || counts[false] != 100 {
			t.Errorf("admitted and refused: %v, want 200 and 100", counts)
		}
		if len(found[refusals.Refused]) != 0 {
			t.Errorf("refused: %+v", found[refusals.Refused])
		}
	})
}

// TestCloseDoesNotWaitForAStoreThatIsAway: an unsure decision then goes
// unnoted.
func TestCloseDoesNotWaitForAStoreThatIsAway(t *testing.T) {
	recorded(t, func(st *flaky, n *refusals.Recorder, ann fence.Stamp) {
		st.down.Store(true)
		r, _ := refusals.OfUnsure(ann, "http:a", true)
		n.Add(r)
		synctest.Wait()
		start := time.Now()
		n.Close()
		if d := time.Since(start); d > time.Second {
			t.Errorf("Close took %s", d)
		}
	})
}
