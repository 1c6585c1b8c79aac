//go:build unix

package chaostest

import (
	"testing"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// TestTheJudgeSeesEveryBreach: the judge accepts a scene in which all went
// well, and sees each way to break the promise.
func TestTheJudgeSeesEveryBreach(t *testing.T) {
	id, other := work.NewID(), work.NewID()
	key := work.EffectID{Item: id, Name: "notify"}
	sound := func() *evidence {
		it := work.Item{ID: id, State: work.Done, Payload: []byte("tallied item 1"), Record: tenure.Record{Token: 7, Owner: "ann"}}
		it.Result = content(it, "ann")
		return &evidence{
			added: map[work.ID]string{id: "tallied item 1"}, items: []work.Item{it},
			effects:   []work.Effect{{EffectID: key, Token: 7, State: work.Sent, Body: it.Result}},
			delivered: map[string][]string{key.String(): {string(it.Result), string(it.Result)}},
			confirmed: map[work.ID][]fence.Token{id: {7}},
			tally:     map[work.ID]int{id: 1},
		}
	}
	if found := judge(*sound()); found != nil {
		t.Errorf("a sound scene: %v", found)
	}
	for what, spoil := range map[string]func(e *evidence){
		"an item is lost":                     func(e *evidence) { e.items = nil },
		"an item is not done":                 func(e *evidence) { e.items[0].State = work.Running },
		"an item from nowhere":                func(e *evidence) { e.items = append(e.items, work.Item{ID: other}) },
		"a stale result":                      func(e *evidence) { e.items[0].Result = []byte("tallied item 1 by bob under 6") },
		"no effect":                           func(e *evidence) { e.effects = nil },
		"an effect too many":                  func(e *evidence) { e.effects = append(e.effects, e.effects[0]) },
		"an effect of another attempt":        func(e *evidence) { e.effects[0].Token = 6 },
		"an effect that was not sent":         func(e *evidence) { e.effects[0].State = work.Unknown },
		"a delivery that never came":          func(e *evidence) { delete(e.delivered, key.String()) },
		"a stale delivery under the same key": func(e *evidence) { e.delivered[key.String()][1] = "tallied item 1 by bob under 6" },
		"a delivery under another key":        func(e *evidence) { e.delivered[key.String()+"x"] = []string{""} },
		"two workers told that it counts":     func(e *evidence) { e.confirmed[id] = []fence.Token{6, 7} },
		"a transaction that counted twice":    func(e *evidence) { e.tally[id] = 2 },
		"a transaction that was lost":         func(e *evidence) { e.tally[id] = 0 },
	} {
		e := sound()
		spoil(e)
		if judge(*e) == nil {
			t.Errorf("not seen: %s", what)
		}
	}
}
