package worktest

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/ledger"
	"github.com/croft-dev/croft/internal/test/suite"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/work"
)

var errCut = store.Unknown(errors.New("the connection broke"))

// wire is the connection to a ledger. While it is broken, requests reach the
// ledger only if they are delivered, and no reply comes back. A flaw answers
// all the same.
type wire struct {
	work.Ledger
	now               *time.Time
	broken, delivered bool

	apply  func(answers []work.Answer) []work.Answer
	claim  func(items []work.Item) ([]work.Item, error)
	take   func(effects []work.Effect) ([]work.Effect, error)
	settle func(answers []work.EffectAnswer) []work.EffectAnswer
}

func (w *wire) lose(do func()) {
	*w.now = w.now.Add(time.Second)
	w.broken = true
	defer func() { w.broken = false }()
	do()
}

func (w *wire) Apply(ctx context.Context, requests []work.Request) []work.Answer {
	if !w.broken {
		return w.Ledger.Apply(ctx, requests)
	}
	answers := work.FailedAnswers(len(requests), errCut)
	if w.delivered {
		answers = w.Ledger.Apply(ctx, requests)
	}
	if w.apply != nil {
		return w.apply(answers)
	}
	return work.FailedAnswers(len(requests), errCut)
}

func (w *wire) Claim(ctx context.Context, c work.Claim) (items []work.Item, err error) {
	if !w.broken || w.delivered {
		items, err = w.Ledger.Claim(ctx, c)
	}
	switch {
	case !w.broken:
		return items, err
	case w.claim != nil:
		return w.claim(items)
	}
	return nil, errCut
}

func (w *wire) Take(ctx context.Context, q work.Taking) ([]work.Effect, error) {
	effects, err := w.Ledger.Take(ctx, q)
	switch {
	case !w.broken:
		return effects, err
	case w.take != nil:
		return w.take(effects)
	}
	return nil, errCut
}

func (w *wire) Settle(ctx context.Context, settlements []work.Settlement) []work.EffectAnswer {
	answers := w.Ledger.Settle(ctx, settlements)
	switch {
	case !w.broken:
		return answers
	case w.settle != nil:
		return w.settle(answers)
	}
	return work.FailedEffects(len(settlements), errCut)
}

// TestWrongAnswersAfterACutAreCaught: a sound ledger passes. The checks report
// the flaw of each broken one.
func TestWrongAnswersAfterACutAreCaught(t *testing.T) {
	after := func(tb testing.TB, w *wire) {
		w.delivered = true
		CutAfterRequest(tb, w, w.Ledger, func(do func(), arrived func() error) {
			w.lose(do)
			if err := arrived(); err != nil {
				tb.Fatalf("nothing arrived: %v", err)
			}
		})
	}
	before := func(tb testing.TB, w *wire) { CutBeforeRequest(tb, w, w.Ledger, w.lose) }
	for name, c := range map[string]struct {
		check func(testing.TB, *wire)
		flaw  wire
		want  string // "" for a sound ledger
	}{
		"sound, cut after":  {after, wire{}, ""},
		"sound, cut before": {before, wire{}, ""},
		"guesses that it was done": {after, wire{
			apply: func(answers []work.Answer) []work.Answer { return answers },
		}, "add whose reply was lost"},
		"guesses that nothing was ready, as a second copy would find": {after, wire{
			claim: func([]work.Item) ([]work.Item, error) { return nil, nil },
		}, "a claim whose reply was lost"},
		"guesses that there was nothing to deliver": {after, wire{
			take: func([]work.Effect) ([]work.Effect, error) { return nil, nil },
		}, "a taking whose reply was lost"},
		"guesses that it was settled": {after, wire{
			settle: func(answers []work.EffectAnswer) []work.EffectAnswer { return answers },
		}, "a settlement whose reply was lost"},
		"guesses that it was not done": {before, wire{apply: func(answers []work.Answer) []work.Answer {
			for i := range answers {
				answers[i].Err = &fence.StaleError{}
			}
			return answers
		}}, "a request that was lost"},
		"delivers it all the same": {before, wire{delivered: true}, "requests that never arrived"},
	} {
		said := suite.Record(t, func(tb testing.TB) {
			now, w := time.Now(), c.flaw
			w.now, w.Ledger = &now, ledger.New(func() time.Time { return now }, ledger.Sound())
			c.check(tb, &w)
		})
		if c.want == "" && len(said) > 0 || c.want != "" && (len(said) == 0 || !strings.Contains(said[0], c.want)) {
			t.Errorf("%s: %q, want %q", name, said, c.want)
		}
	}
}

// absent is a ledger without its server. All its methods say so, except the one
// that it hides.
type absent struct{ hides string }

func (a absent) err(what string) error {
	if what == a.hides {
		return nil
	}
	return errCut
}

// noneBut yields an error, unless it is nil.
func noneBut[T any](err error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		if err != nil {
			yield(none, err)
		}
	}
}

func (a absent) Apply(context.Context, []work.Request) []work.Answer {
	return []work.Answer{{Err: a.err("Apply")}}
}

func (a absent) Settle(context.Context, []work.Settlement) []work.EffectAnswer {
	return []work.EffectAnswer{{Err: a.err("Settle")}}
}

func (a absent) Claim(context.Context, work.Claim) ([]work.Item, error) { return nil, a.err("Claim") }

func (a absent) Take(context.Context, work.Taking) ([]work.Effect, error) { return nil, a.err("Take") }

func (a absent) Get(context.Context, work.ID) (work.Item, error) { return work.Item{}, a.err("Get") }

func (a absent) Stats(context.Context, string) ([]work.Stats, error) { return nil, a.err("Stats") }

func (a absent) Govern(context.Context, work.RuleChange) (work.Rule, error) {
	return work.Rule{}, a.err("Govern")
}

func (a absent) Rules(context.Context, work.RuleQuery) iter.Seq2[work.Rule, error] {
	return noneBut[work.Rule](a.err("Rules"))
}

func (a absent) Now(context.Context) (time.Time, error) { return time.Time{}, a.err("Now") }
func (a absent) Close() error                           { return nil }

func (a absent) Prune(context.Context, work.Retention, int) (work.Pruned, error) {
	return work.Pruned{}, a.err("Prune")
}

func (a absent) Wake(context.Context, work.Wanted) (<-chan struct{}, error) {
	return nil, a.err("Wake")
}

func (a absent) List(context.Context, work.Query) iter.Seq2[work.Item, error] {
	return noneBut[work.Item](a.err("List"))
}

func (a absent) Effects(context.Context, work.EffectQuery) iter.Seq2[work.Effect, error] {
	return noneBut[work.Effect](a.err("Effects"))
}

func (a absent) Refusals(context.Context, work.RefusalQuery) iter.Seq2[work.Refusal, error] {
	return noneBut[work.Refusal](a.err("Refusals"))
}

// TestNotThereCatchesALedgerThatHidesIt: an empty answer would mean something
// else.
func TestNotThereCatchesALedgerThatHidesIt(t *testing.T) {
	for _, hides := range []string{
		"", "Apply", "Claim", "Get", "Take", "Settle", "Stats", "Prune", "Now", "List", "Effects", "Refusals", "Wake",
		"Govern", "Rules",
	} {
		said := suite.Record(t, func(tb testing.TB) { NotThere(tb, absent{hides}) })
		if hides == "" && len(said) > 0 || hides != "" && (len(said) != 1 || !strings.HasPrefix(said[0], hides+" of a server")) {
			t.Errorf("hidden by %q: %q", hides, said)
		}
	}
}
