package workcmd

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/croft-dev/croft/work"
)

// outbox is a ledger whose answers a test gives.
type outbox struct {
	work.Ledger
	taken chan []work.Effect
	err   error // of settlements
}

func (o outbox) Take(context.Context, work.Taking) ([]work.Effect, error) { return <-o.taken, nil }

func (o outbox) Settle(_ context.Context, all []work.Settlement) []work.EffectAnswer {
	answers := make([]work.EffectAnswer, len(all))
	for i := range answers {
		answers[i].Err = o.err
	}
	return answers
}

// TestATakenEffectIsUnderWayUntilItIsSettled: --until-empty waits for that.
// Otherwise the dispatcher would give back what it has taken and not sent.
func TestATakenEffectIsUnderWayUntilItIsSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := outbox{taken: make(chan []work.Effect)}
		u := newUnderWay(&o)
		expect := func(want bool, when string) {
			t.Helper()
			if synctest.Wait(); u.any() != want {
				t.Errorf("%s: under way: %v", when, !want)
			}
		}
		one := work.EffectID{Item: "01a1f6a0d1d9731fb3ebc9e739da9293", Name: "a"}
		take := func() { _, _ = u.Take(t.Context(), work.Taking{Hold: time.Minute}) }
		settle := func() { u.Settle(t.Context(), []work.Settlement{{Effect: one}}) }
		expect(false, "at first")
		go take()
		expect(true, "while the ledger is asked")
		o.taken <- nil
		expect(false, "nothing was taken")
		go take()
		o.taken <- []work.Effect{{EffectID: one}}
		expect(true, "taken")
		o.err = fmt.Errorf("%w: no answer", work.ErrUnknown)
		settle()
		expect(true, "the settlement got no answer")
		o.err = nil
		settle()
		expect(false, "settled")
		go take()
		o.taken <- []work.Effect{{EffectID: one}}
		synctest.Wait()
		time.Sleep(time.Minute + 1)
		expect(false, "after its time it is an orphan")
	})
}
