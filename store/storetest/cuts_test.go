package storetest

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/test/suite"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// wire is the connection to a store. While it is broken, faulty carries the
// requests.
type wire struct {
	store.Store
	clock  *Clock
	faulty func(ctx context.Context, st store.Store, requests []tenure.Request) []store.Answer
	broken bool
}

func (w *wire) Apply(ctx context.Context, requests []tenure.Request) []store.Answer {
	if w.broken {
		return w.faulty(ctx, w.Store, requests)
	}
	return w.Store.Apply(ctx, requests)
}

func (w *wire) lose(do func()) {
	w.clock.Advance(time.Second)
	w.broken = true
	defer func() { w.broken = false }()
	do()
}

// delivered carries out requests and loses the answers. undelivered loses the
// requests.
func delivered(ctx context.Context, st store.Store, requests []tenure.Request) []store.Answer {
	return DropReply(st, nil).Apply(ctx, requests)
}

func undelivered(ctx context.Context, st store.Store, requests []tenure.Request) []store.Answer {
	return DropRequest(st, nil).Apply(ctx, requests)
}

// TestWrongAnswersAfterACutAreCaught: a sound store passes. The check reports
// the flaw of each broken store.
func TestWrongAnswersAfterACutAreCaught(t *testing.T) {
	after := func(tb testing.TB, w *wire) {
		CutAfterRequest(tb, w, w.Store, func(do func(), arrived func() error) {
			w.lose(do)
			if err := arrived(); err != nil {
				tb.Fatalf("nothing arrived: %v", err)
			}
		})
	}
	before := func(tb testing.TB, w *wire) { CutBeforeRequest(tb, w, w.Store, w.lose) }
	for name, c := range map[string]struct {
		check  func(testing.TB, *wire)
		faulty func(context.Context, store.Store, []tenure.Request) []store.Answer
		want   string // "" for a sound store
	}{
		"sound, cut after":  {after, delivered, ""},
		"sound, cut before": {before, undelivered, ""},
		"guesses that it was done": {after, func(ctx context.Context, st store.Store, requests []tenure.Request) []store.Answer {
			return st.Apply(ctx, requests)
		}, "acquire whose reply was lost"},
		"asks for another grant": {after, func(ctx context.Context, st store.Store, requests []tenure.Request) []store.Answer {
			others := slices.Clone(requests)
			others[0].Secret = tenure.NewSecret()
			return delivered(ctx, st, others)
		}, "acquire again"},
		"guesses that it was not done": {before, func(context.Context, store.Store, []tenure.Request) []store.Answer {
			return []store.Answer{{Err: tenure.ErrHeld}}
		}, "a request that was lost"},
		"delivers it all the same": {before, delivered, "a request that never arrived left"},
	} {
		said := suite.Record(t, func(tb testing.TB) {
			p := sound()
			c.check(tb, &wire{Store: p.place(tb).Open(tb, Options{}), clock: p.clock, faulty: c.faulty})
		})
		if c.want == "" && len(said) > 0 || c.want != "" && (len(said) == 0 || !strings.Contains(said[0], c.want)) {
			t.Errorf("%s: %q, want %q", name, said, c.want)
		}
	}
}

// absent is a store without its server. All its methods say so, except the one
// that it hides.
type absent struct{ hides string }

func (a absent) err(what string) error {
	if what == a.hides {
		return nil
	}
	return store.Unknown(errors.New("connection refused"))
}

func (a absent) Apply(_ context.Context, requests []tenure.Request) []store.Answer {
	return []store.Answer{{Err: a.err("Apply")}}
}

func (a absent) Get(context.Context, string) (tenure.Record, error) {
	return tenure.Record{}, a.err("Get")
}

func (a absent) Now(context.Context) (time.Time, error) { return time.Time{}, a.err("Now") }

func (a absent) Watch(context.Context, string) (<-chan struct{}, error) { return nil, a.err("Watch") }
func (a absent) Sweep(context.Context) (int, error)                     { return 0, a.err("Sweep") }
func (a absent) Close() error                                           { return nil }
func (a absent) List(context.Context, string) iter.Seq2[tenure.Record, error] {
	return func(yield func(tenure.Record, error) bool) {
		if err := a.err("List"); err != nil {
			yield(tenure.Record{}, err)
		}
	}
}

// TestNotThereCatchesAStoreThatHidesIt: an empty answer would mean something
// else.
func TestNotThereCatchesAStoreThatHidesIt(t *testing.T) {
	for _, hides := range []string{"", "Apply", "Get", "Now", "Watch", "Sweep", "List"} {
		said := suite.Record(t, func(tb testing.TB) { NotThere(tb, absent{hides}) })
		if hides == "" && len(said) > 0 || hides != "" && (len(said) != 1 || !strings.HasPrefix(said[0], hides+" of a server")) {
			t.Errorf("hidden by %q: %q", hides, said)
		}
	}
}
