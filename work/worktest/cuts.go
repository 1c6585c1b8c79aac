package worktest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/test/suite"
	"github.com/croft-dev/croft/work"
)

// CutAfterRequest tries every kind of request with connections that really
// break. It sends each through far. The server carries it out, and the reply is
// lost. The outcome must be unknown. Asked again, the answer must be that of
// the first request, and the ledger must keep the same.
//
// near is another handle on the same ledger. Its connections never break. lose
// calls do, and makes sure that its reply is lost: it breaks far's connections
// only after arrived has returned nil, which means that the server has carried
// out the request.
//
// A claim may also be given back: the server may notice that its client is
// gone. Asked again, the claim then gets nothing, and another gets the item.
//
// The suite breaks no real connections, so a ledger with a server should also
// pass this check.
func CutAfterRequest(tb testing.TB, far, near work.Ledger, lose func(do func(), arrived func() error)) {
	tb.Helper()
	t := cutTrial(tb, near)
	var h held
	// cut loses the reply to a request, and asks again.
	cut := func(req work.Request) work.Answer {
		tb.Helper()
		before := t.get(req.ID)
		t.warm(far)
		var a work.Answer
		lose(func() { a = far.Apply(t.ctx, []work.Request{req})[0] }, func() error {
			return changed(before, t.get(req.ID))
		})
		if !errors.Is(a.Err, work.ErrUnknown) || !a.Item.IsZero() {
			tb.Fatalf("%s whose reply was lost: %v, %+v; want unknown", req.Verb, a.Err, a.Item)
		}
		done := t.known(req.ID)
		a = again(t, far, req)
		if a.Err != nil || a.Item.Record.Token != done.item.Record.Token || a.Item.State != done.item.State {
			tb.Fatalf("%s again: %v, token %d (%s); the ledger had token %d (%s)", req.Verb, a.Err,
				a.Item.Record.Token, a.Item.State, done.item.Record.Token, done.item.State)
		}
		timed := []work.Verb{work.Heartbeat, work.Report, work.Checkpoint} // each writes its time
		if now := t.known(req.ID); !slices.Contains(timed, req.Verb) {
			if d := suite.Differ(done.item, now.item); d != "" || len(done.effects) != len(now.effects) {
				tb.Fatalf("%s again has changed the item: %s; %d effects, then %d", req.Verb, d, len(done.effects),
					len(now.effects))
			}
		}
		return a
	}
	add := added("cut")
	cut(add)
	h = t.cutClaim(far, lose, add)
	report, save := h.by(work.Report), h.by(work.Checkpoint)
	report.Progress, save.State = "half", []byte("half")
	cut(h.by(work.Heartbeat))
	cut(report)
	cut(save)
	cut(h.by(work.Release))
	cut(hand(work.Cancel, h.ID))
	cut(hand(work.Replay, h.ID))
	done := t.claimed("cut", long).by(work.Complete)
	done.Result, done.Effects = []byte("result"), []work.Emission{{Name: "x", Body: []byte("body")}}
	if a := cut(done); !a.Repeated || string(a.Item.Result) != "result" {
		tb.Fatalf("the repeated completion: repeated %v, result %q", a.Repeated, a.Item.Result)
	}
	t.cutSettlement(far, lose, h.ID)
}

// cutTrial is a trial on a ledger that the caller has opened.
func cutTrial(tb testing.TB, near work.Ledger) *trial {
	return newTrial(tb, Harness{Open: func(testing.TB) work.Ledger { return keptOpen{near} }})
}

// keptOpen is a ledger whose owner closes it.
type keptOpen struct{ work.Ledger }

func (keptOpen) Close() error { return nil }

// warm opens a connection. So only the request itself is lost afterwards.
func (t *trial) warm(far work.Ledger) {
	t.Helper()
	if a := again(t, far, added("warm")); a.Err != nil {
		t.Fatalf("warming the connection: %v", a.Err)
	}
}

// changed returns an error while an item is as it was.
func changed(before, now work.Item) error {
	if suite.Differ(before, now) == "" {
		return errors.New("not yet")
	}
	return nil
}

// again sends a request until it has an answer.
func again(t *trial, l work.Ledger, req work.Request) (a work.Answer) {
	t.Helper()
	for t.ctx.Err() == nil {
		if a = l.Apply(t.ctx, []work.Request{req})[0]; !errors.Is(a.Err, work.ErrUnknown) {
			return a
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%s: %v", req.Verb, a.Err)
	return a
}

// cutClaim loses the reply to a claim, and returns the item as its owner has it
// in the end.
func (t *trial) cutClaim(far work.Ledger, lose func(do func(), arrived func() error), add work.Request) held {
	t.Helper()
	c := claimOf(add.Queue)
	var got []work.Item
	var err error
	before := t.get(add.ID)
	t.warm(far)
	lose(func() { got, err = far.Claim(t.ctx, c) }, func() error { return changed(before, t.get(add.ID)) })
	if !errors.Is(err, work.ErrUnknown) || len(got) > 0 {
		t.Fatalf("a claim whose reply was lost: %v, %d items; want unknown", err, len(got))
	}
	c.Again = true
	for t.ctx.Err() == nil {
		if got, err = far.Claim(t.ctx, c); err == nil {
			break
		}
	}
	it := t.get(add.ID)
	switch {
	case err != nil:
		t.Fatalf("the claim again: %v", err)
	case len(got) == 1 && got[0].ID == add.ID && it.Attempts == 1 && string(got[0].Payload) == string(add.Payload):
		if it.State == work.Running {
			return held{got[0], c.Secret}
		}
	case len(got) > 0:
		t.Fatalf("the claim again got %d items; the first is %s in attempt %d", len(got), describe(got[0]), it.Attempts)
	}
	// It was given back. The secret is spent, and another gets the item.
	for t.get(add.ID).State != work.Waiting && t.ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	c = claimOf(add.Queue)
	if got, err = far.Claim(t.ctx, c); err != nil || len(got) != 1 || got[0].Attempts != 1 {
		t.Fatalf("a claim after the item was given back: %v, %d items", err, len(got))
	}
	return held{got[0], c.Secret}
}

// cutSettlement loses the replies to a taking and to a settlement.
func (t *trial) cutSettlement(far work.Ledger, lose func(do func(), arrived func() error), id work.ID) {
	t.Helper()
	stamp := dispatcher(1)
	state := func(want work.EffectState) func() error {
		return func() error {
			for _, e := range t.effectsOf(id) {
				if e.State != want {
					return errors.New("not yet")
				}
			}
			return nil
		}
	}
	var err error
	t.warm(far)
	lose(func() {
		_, err = far.Take(t.ctx, work.Taking{Stamp: stamp, Limit: 10, Hold: long})
	}, state(work.Unknown))
	if !errors.Is(err, work.ErrUnknown) {
		t.Fatalf("a taking whose reply was lost: %v, want unknown", err)
	}
	sent := work.Settlement{Effect: t.effectsOf(id)[0].EffectID, Attempt: 1, Stamp: stamp, State: work.Sent}
	var a work.EffectAnswer
	t.warm(far)
	lose(func() { a = far.Settle(t.ctx, []work.Settlement{sent})[0] }, state(work.Sent))
	if !errors.Is(a.Err, work.ErrUnknown) {
		t.Fatalf("a settlement whose reply was lost: %v, want unknown", a.Err)
	}
	for a.Err != nil && t.ctx.Err() == nil {
		if a = far.Settle(t.ctx, []work.Settlement{sent})[0]; a.Err != nil && !errors.Is(a.Err, work.ErrUnknown) {
			break
		}
	}
	if a.Err != nil || !a.Repeated {
		t.Fatalf("the settlement again: %v, repeated %v", a.Err, a.Repeated)
	}
}

// CutBeforeRequest tries requests that do not reach the server. They leave
// nothing, and count when they are sent again. lose calls do and loses its
// requests.
func CutBeforeRequest(tb testing.TB, far, near work.Ledger, lose func(do func())) {
	tb.Helper()
	t := cutTrial(tb, near)
	h, add, c := t.running("cut"), added("other"), claimOf("other")
	t.warm(far)
	lose(func() {
		for _, a := range far.Apply(t.ctx, []work.Request{h.by(work.Complete), add}) {
			if !errors.Is(a.Err, work.ErrUnknown) {
				tb.Fatalf("a request that was lost: %v, want unknown", a.Err)
			}
		}
		if _, err := far.Claim(t.ctx, c); !errors.Is(err, work.ErrUnknown) {
			tb.Fatalf("a claim that was lost: %v, want unknown", err)
		}
	})
	if it := t.get(h.ID); it.State != work.Running || !t.get(add.ID).IsZero() {
		tb.Fatalf("requests that never arrived: the item is %s, the other is %s", it.State, describe(t.get(add.ID)))
	}
	for _, req := range []work.Request{h.by(work.Complete), add} {
		if a := again(t, far, req); a.Err != nil || a.Repeated {
			tb.Fatalf("%s, asked again: %v, repeated %v", req.Verb, a.Err, a.Repeated)
		}
	}
	c.Again = true
	if got, err := far.Claim(t.ctx, c); err != nil || len(got) != 1 || got[0].ID != add.ID {
		tb.Fatalf("a claim that had never arrived, asked again: %v, %d items", err, len(got))
	}
}

// NotThere checks that a ledger says so if its server cannot be reached, in all
// its methods, and that it can be closed.
func NotThere(tb testing.TB, l work.Ledger) {
	tb.Helper()
	ctx := tb.Context()
	unknown := func(what string, err error) {
		tb.Helper()
		if !errors.Is(err, work.ErrUnknown) {
			tb.Errorf("%s of a server that is not there: %v, want unknown", what, err)
		}
	}
	unknown("Apply", l.Apply(ctx, []work.Request{added("q")})[0].Err)
	_, err := l.Claim(ctx, claimOf("q"))
	unknown("Claim", err)
	_, err = l.Get(ctx, work.NewID())
	unknown("Get", err)
	stamp := dispatcher(1)
	_, err = l.Take(ctx, work.Taking{Stamp: stamp, Limit: 1, Hold: long})
	unknown("Take", err)
	unknown("Settle", l.Settle(ctx, []work.Settlement{{
		Effect: work.EffectID{Item: work.NewID(), Name: "x"}, Attempt: 1, Stamp: stamp, State: work.Sent,
	}})[0].Err)
	_, err = l.Stats(ctx, "")
	unknown("Stats", err)
	_, err = l.Prune(ctx, work.Retention{}, 1)
	unknown("Prune", err)
	_, err = l.Now(ctx)
	unknown("Now", err)
	unknown("List", errorOf(l.List(ctx, work.Query{})))
	unknown("Effects", errorOf(l.Effects(ctx, work.EffectQuery{})))
	unknown("Refusals", errorOf(l.Refusals(ctx, work.RefusalQuery{})))
	_, err = l.Govern(ctx, change(work.Pause, "q"))
	unknown("Govern", err)
	unknown("Rules", errorOf(l.Rules(ctx, work.RuleQuery{})))
	if w, ok := l.(work.Waker); ok {
		_, err = w.Wake(ctx, work.Wanted{Queues: []string{"q"}})
		unknown("Wake", err)
	}
	if err := l.Close(); err != nil {
		tb.Errorf("Close: %v", err)
	}
}

// errorOf returns the first error of a sequence.
func errorOf[T any](seq func(func(T, error) bool)) (failed error) {
	for _, err := range seq {
		if failed = err; err != nil {
			break
		}
	}
	return failed
}
