package drill

import (
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// A sound store never shows these outcomes, so the tests make them up.

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func record(owner string, token fence.Token, cause tenure.Cause, acquired time.Duration) tenure.Record {
	return tenure.Record{
		Key: "k", Token: token, Grant: fence.Grant(strings.Repeat(strings.ToLower(owner[:1]), 32)), Owner: owner, State: tenure.Held, Cause: cause,
		Acquired: noon.Add(acquired), Renewed: noon.Add(acquired), Deadline: noon.Add(acquired + 2*time.Second), TTL: 2 * time.Second, Terms: 2,
	}
}

func refusedAs(k kind, why tenure.Why, token fence.Token) reply {
	return reply{Err: &failure{Kind: k, Why: why, Token: token, Message: "refused"}}
}

var (
	a1, b2  = record("A", 1, tenure.First, 0), record("B", 2, tenure.Expired, 2100*time.Millisecond)
	gotB    = reply{Record: b2}
	unknown = refusedAs(kindUnknown, "", 0)
	dead    = reply{Err: &failure{Kind: kindFailed, Message: "its process has ended"}}
	stale   = refusedAs(kindStale, "", 2)
	byA     = result(1, "A", 1)
	byB     = result(2, "B", 2)
)

func TestJudges(t *testing.T) {
	change := func(rec tenure.Record, f func(*tenure.Record)) tenure.Record {
		f(&rec)
		return rec
	}
	early := reply{Record: change(b2, func(r *tenure.Record) { r.Acquired = noon.Add(1900 * time.Millisecond) })}
	lowToken := reply{Record: change(b2, func(r *tenure.Record) { r.Token = 1 })}
	wrongCause := reply{Record: change(b2, func(r *tenure.Record) { r.Cause = tenure.First })}
	at := noon.Add(2500 * time.Millisecond)
	ended := func(loss string, at, stall time.Duration) reply {
		return reply{Loss: loss, At: noon.Add(at), Stall: stall}
	}
	late := func(r reply) verdict { return inTime(r, a1.Deadline, 50*time.Millisecond) }

	for name, c := range map[string]struct {
		got  verdict
		want Result
		says string
	}{
		"a grant after the deadline":          {granted(gotB, tenure.Expired, a1), OK, "0.10s after A's deadline"},
		"a grant before the deadline":         {granted(early, tenure.Expired, a1), Failed, "0.10s before A's deadline"},
		"a grant with a token that is no new": {granted(lowToken, tenure.Expired, a1), Failed, "token 1, not above 1"},
		"a grant of another cause":            {granted(wrongCause, tenure.Expired, a1), Failed, "granted (first)"},
		"a grant refused":                     {granted(refusedAs(kindHeld, tenure.WhyHeld, 1), tenure.Expired, a1), Failed, "held by another"},
		"a grant unknown":                     {granted(unknown, tenure.Expired, a1), NotDone, "refused"},
		"a grant to a dead process":           {granted(dead, tenure.Expired, a1), NotDone, "its process has ended"},

		"held":                             {held(refusedAs(kindHeld, tenure.WhyHeld, 1), a1), OK, "held by another"},
		"held by a stranger":               {held(refusedAs(kindHeld, tenure.WhyHeld, 7), a1), Failed, "token 7"},
		"granted while held":               {held(early, a1), Failed, "granted"},
		"reserved":                         {held(refusedAs(kindHeld, tenure.WhyReserved, 1), a1), Failed, "reserved"},
		"granted after the holder starved": {held(gotB, a1), NotDone, "A's own lease ran out"},
		"a stale renew refused":            {notOwned(refusedAs(kindNotOwned, tenure.WhySuperseded, 2), tenure.WhySuperseded), OK, "refused (superseded)"},
		"a stale renew accepted":           {notOwned(gotB, tenure.WhySuperseded), Failed, "accepted, although it is stale"},
		"a stale renew misjudged":          {notOwned(refusedAs(kindNotOwned, tenure.WhyReleased, 2), tenure.WhySuperseded), Failed, "as released instead of superseded"},
		"a stale renew taken for held":     {notOwned(refusedAs(kindHeld, tenure.WhyHeld, 2), tenure.WhySuperseded), Failed, "held"},
		"a stale renew unanswered":         {notOwned(unknown, tenure.WhySuperseded), NotDone, ""},

		"a lease untouched":       {holds(b2, b2, at), OK, "B still holds it"},
		"a lease renewed":         {holds(change(b2, func(r *tenure.Record) { r.Deadline = r.Deadline.Add(1) }), b2, at), OK, ""},
		"a lease released":        {holds(change(b2, func(r *tenure.Record) { r.State = tenure.Free }), b2, at), Failed, "ended or cut short"},
		"a lease shortened":       {holds(change(b2, func(r *tenure.Record) { r.Deadline = r.Deadline.Add(-1) }), b2, at), Failed, "ended or cut short"},
		"a lease run out":         {holds(b2, b2, noon.Add(time.Hour)), NotDone, "B's own lease ran out"},
		"a lease gone to another": {holds(a1, b2, noon), Failed, "from B to A"},
		"a lease forgotten":       {holds(tenure.Record{}, b2, noon), Failed, "from B to nobody"},

		"a key free":        {free(change(a1, func(r *tenure.Record) { r.State = tenure.Free }), 1, noon), OK, "free"},
		"a key resurrected": {free(a1, 1, noon), Failed, "went to A"},
		"a key with a new token": {
			free(change(a1, func(r *tenure.Record) { r.State, r.Token = tenure.Free, 3 }), 1, noon), Failed, "went to",
		},

		"a write admitted":         {written(reply{}, byB, byB), OK, "written"},
		"a write that did nothing": {written(reply{}, byB, byA), Failed, byA},
		"a write refused":          {written(stale, byB, byA), Failed, "stale"},

		"a renewal of a lease that ran out":  {accepted(refusedAs(kindNotOwned, tenure.WhyExpired, 1), ""), NotDone, "ran out"},
		"a renewal of a lease that was lost": {accepted(refusedAs(kindNotOwned, tenure.WhySuperseded, 1), ""), Failed, "superseded"},

		"a stale write refused":               {bounced(stale, byB, byB, "B"), OK, "refused by the fence"},
		"a stale write over the newer result": {bounced(reply{}, byB, byA, "B"), Corrupted, "written over B's result"},
		"a stale write in another's turn":     {bounced(reply{}, byA, result(3, "A", 1), "B"), Corrupted, "B's turn"},
		"a stale write that did nothing":      {bounced(reply{}, byB, byB, "B"), Failed, "accepted"},
		"a stale write refused, but done":     {bounced(stale, byB, byA, "B"), Corrupted, "and yet the file changed"},
		"a stale write lost, but done":        {bounced(dead, byB, byA, "B"), Corrupted, "and yet the file changed"},
		"a stale write refused as another's":  {bounced(refusedAs(kindRefused, "", 2), byB, byB, "B"), Failed, "refused, but as"},
		"a stale write unanswered":            {bounced(unknown, byB, byB, "B"), NotDone, ""},

		"a file whole": {whole(byA, byA), OK, "as before"},
		"a file torn":  {whole(byA, byA[:4]), Failed, `"resu"`},

		"a lease over":               {over(reply{Loss: "taken_over"}, "taken_over"), OK, "taken over"},
		"a lease over otherwise":     {over(reply{Loss: "closed"}, "taken_over"), Failed, "closed"},
		"a lease that goes on":       {over(reply{}, "taken_over"), Failed, "not over"},
		"a lease that does not end":  {over(dead, "taken_over"), NotDone, ""},
		"in time":                    {late(ended("unreachable", 1800*time.Millisecond, 0)), OK, "0.20s before the deadline"},
		"at the deadline":            {late(ended("unreachable", 2050*time.Millisecond, 0)), Failed, "after the deadline"},
		"about the deadline":         {late(ended("unreachable", 2*time.Second, 0)), NotDone, "0.050s to tell the time"},
		"late":                       {late(ended("unreachable", 2300*time.Millisecond, 100*time.Millisecond)), Failed, "0.30s after the deadline"},
		"late on a machine that was": {late(ended("unreachable", 2300*time.Millisecond, 400*time.Millisecond)), NotDone, "nothing ran for 0.40s"},

		"asked twice, granted once":   {once(reply{Record: a1, Tokens: []fence.Token{1, 1}}, change(a1, func(r *tenure.Record) { r.Terms = 1 })), OK, "same token"},
		"asked twice, granted twice":  {once(reply{Record: b2, Tokens: []fence.Token{1, 2}}, b2), Failed, "granted 2 times"},
		"asked twice, another record": {once(reply{Record: a1, Tokens: []fence.Token{1, 1}}, a1), Failed, "granted 2 times"},
		"asked once":                  {once(reply{Record: a1, Tokens: []fence.Token{1}}, a1), NotDone, "no reply was lost"},

		"fences raised":       {raised(reply{Raised: 1}, 1), OK, "raised"},
		"no fence named":      {raised(reply{}, 0), OK, "no fence"},
		"a fence forgotten":   {raised(reply{}, 1), Failed, "0 of 1"},
		"a fence unreachable": {raised(reply{Raised: 1, Unraised: 1}, 2), Failed, "1 of 2"},
	} {
		if c.got.result != c.want || !strings.Contains(c.got.happened, c.says) {
			t.Errorf("%s: %s (%q), want %s with %q", name, c.got.result, c.got.happened, c.want, c.says)
		}
	}
}

func TestExactlyOneOfManyWins(t *testing.T) {
	lost := refusedAs(kindHeld, tenure.WhyHeld, 2)
	for name, c := range map[string]struct {
		replies []reply
		rec     tenure.Record
		want    Result
	}{
		"one":                      {[]reply{lost, gotB, lost}, b2, OK},
		"none":                     {[]reply{lost, lost}, b2, Failed},
		"two":                      {[]reply{gotB, lost, gotB}, b2, Failed},
		"one, unknown to the rest": {[]reply{gotB, refusedAs(kindHeld, tenure.WhyHeld, 1)}, b2, Failed},
		"one, another recorded":    {[]reply{gotB, lost}, a1, Failed},
		"one of the silent":        {[]reply{gotB, unknown}, b2, NotDone},
		"one of the disowned":      {[]reply{gotB, refusedAs(kindNotOwned, tenure.WhyUnknown, 2)}, b2, Failed},
	} {
		if got := oneWinner(c.replies, c.rec); got.result != c.want {
			t.Errorf("%s: %s (%s), want %s", name, got.result, got.happened, c.want)
		}
	}
}

func TestAReportIsAsGoodAsItsWorstStep(t *testing.T) {
	steps := func(all ...Step) *Report { return &Report{Scenes: []Scene{{Steps: all[:1]}, {Steps: all[1:]}}} }
	fine, wrong, undone, unanswered := Step{Result: OK}, Step{Result: Failed}, Step{Result: NotDone}, Step{Result: NotDone, Unknown: true}
	for name, c := range map[string]struct {
		report           *Report
		good, unanswered bool
	}{
		"all well":                 {steps(fine, fine), true, false},
		"something stale":          {steps(fine, wrong), false, false},
		"something undone":         {steps(fine, undone), false, false},
		"an answer missing":        {steps(fine, unanswered), false, true},
		"stale and unanswered":     {steps(wrong, unanswered), false, false},
		"undone and unanswered":    {steps(undone, unanswered), false, false},
		"a stale write in the end": {steps(fine, Step{Result: Corrupted}), false, false},
	} {
		if c.report.Good() != c.good || c.report.Unanswered() != c.unanswered {
			t.Errorf("%s: good %v, unanswered %v; want %v, %v", name, c.report.Good(), c.report.Unanswered(), c.good, c.unanswered)
		}
	}
}
