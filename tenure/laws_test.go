package tenure_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/croft-dev/croft/tenure"
)

// These tests try the laws on random scenarios. The judge checks every answer
// against all laws and names the broken law. It also checks what the
// laws rest on: refusals change nothing and are true, the law is pure, a
// repeated request has no second effect, and late copies of requests change
// nothing.

// TestLaw1OneGrantPerTokenAndSecret: under any clock.
func TestLaw1OneGrantPerTokenAndSecret(t *testing.T) { underAnyClock(t) }

// TestLaw2TokensRise: under any clock. It holds after a record was dropped,
// unless the clock has stepped back by a retention. It holds after the store
// was wiped, unless the clock has stepped back at all.
func TestLaw2TokensRise(t *testing.T) { underAnyClock(t) }

// TestLaw7AWrongGrantChangesNothing: under any clock.
func TestLaw7AWrongGrantChangesNothing(t *testing.T) { underAnyClock(t) }

// TestLaw8EveryTermHasACauseEveryTakeoverAnActor: under any clock.
func TestLaw8EveryTermHasACauseEveryTakeoverAnActor(t *testing.T) { underAnyClock(t) }

// TestLaw4NoGrantBeforeDeadline: with a clock that does not step. The other
// laws are checked, too.
func TestLaw4NoGrantBeforeDeadline(t *testing.T) { try(t, true) }

func underAnyClock(t *testing.T) {
	t.Helper()
	try(t, false)
}

func try(t *testing.T, steady bool) {
	t.Helper()
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		if err := verdict(tenure.Apply, tenure.Record.Droppable, scenarios(steady).Draw(t, "scenario"), steady); err != nil {
			t.Fatal(err)
		}
	})
}

// TestScenariosReachEverything: the judge can only check answers that occur. A
// few hundred scenarios bring up every answer of the law.
func TestScenariosReachEverything(t *testing.T) {
	seen := map[string]bool{}
	watch := func(rec tenure.Record, q tenure.Request, now time.Time) (tenure.Record, bool, error) {
		next, changed, err := tenure.Apply(rec, q, now)
		answer := string(q.Verb) + ":"
		switch {
		case err != nil:
			answer += refusal(err)
		case next.Token != rec.Token:
			answer += "+" + string(next.Cause)
		case changed:
			answer += "changed"
		default:
			answer += "same"
		}
		seen[answer] = true
		return next, changed, err
	}
	missing := strings.Fields(`acquire:+first acquire:+released acquire:+expired acquire:+handoff acquire:+cancelled acquire:+recovery acquire:same
		acquire:held acquire:reserved acquire:hold acquire:period acquire:released acquire:expired acquire:superseded acquire:taken_over
		renew:changed renew:unknown renew:released renew:expired renew:superseded renew:taken_over
		report:changed report:unknown report:released report:expired report:superseded report:taken_over
		release:changed release:same release:unknown release:expired release:superseded release:taken_over
		takeover:+operator takeover:same takeover:invalid takeover:expired takeover:superseded
		reserve:+operator reserve:same reserve:invalid reserve:superseded revoke:+cancelled revoke:same revoke:invalid revoke:superseded`)
	for seed := 0; seed < 300 && len(missing) > 0; seed++ {
		steady := seed%2 == 0
		if err := verdict(watch, tenure.Record.Droppable, scenarios(steady).Example(seed), steady); err != nil {
			t.Fatal(err)
		}
		missing = slices.DeleteFunc(missing, func(answer string) bool { return seen[answer] })
	}
	if len(missing) > 0 {
		t.Errorf("no scenario led to %s", missing)
	}
}

// refusal names the reason of a refusal in one word.
func refusal(err error) string {
	var held *tenure.HeldError
	var not *tenure.NotOwnedError
	switch {
	case errors.As(err, &held):
		return string(held.Why)
	case errors.As(err, &not):
		return string(not.Why)
	}
	return "invalid"
}
