package tenure_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// daily is the request of a periodic job.
func daily(who string, every time.Duration) tenure.Request {
	q := ask("acquire", who)
	q.Every = every
	return q
}

// TestWorkIsRefusedUntilItsSlotEnds: an Acquire is refused in the slot of the
// last success. The first success is in the middle of its slot. The request's
// own period counts, not the record's.
func TestWorkIsRefusedUntilItsSlotEnds(t *testing.T) {
	const day = 24 * time.Hour
	first := play(t, "0s acquire+daily ann; 50s release ann")
	early := play(t, "0s acquire+daily ann; 50s release ann; 12h acquire+daily bob; 12h0m50s release bob")
	if early.Every != day || !early.Grid.Equal(noon) || !early.Succeeded.Equal(after(12*time.Hour)) {
		t.Fatalf("the record says every %s on the grid of %s, succeeded %s", early.Every, early.Grid, early.Succeeded)
	}
	for _, c := range []struct {
		name  string
		done  tenure.Record
		every time.Duration
		at    time.Duration
		until time.Duration // 0: granted
	}{
		{"at once", first, day, time.Minute, 12 * time.Hour},
		{"just before the slot ends", first, day, 12*time.Hour - time.Microsecond, 12 * time.Hour},
		{"when the slot ends", first, day, 12 * time.Hour, 0},
		{"a minute early tomorrow", first, day, day - time.Minute, 0},
		{"without a period of its own", first, 0, time.Minute, 0},
		{"with a shorter period, before half", first, time.Hour, 29 * time.Minute, 30 * time.Minute},
		{"with a shorter period, at half", first, time.Hour, 30 * time.Minute, 0},
		{"with a longer period", first, 7 * day, day, 84 * time.Hour},
		{"with an odd period", first, day + time.Microsecond, 12 * time.Hour, 12*time.Hour + 500*time.Nanosecond},
		{"after a success at the beginning of a slot", early, day, day, 36 * time.Hour},
		{"just before that slot ends", early, day, 36*time.Hour - time.Microsecond, 36 * time.Hour},
		{"when that slot ends", early, day, 36 * time.Hour, 0},
		{"with a period that has no grid", early, 2 * day, day, 36 * time.Hour},
		{"for good", early, tenure.Once, 20 * 365 * day, 12*time.Hour + 100*365*day},
	} {
		next, changed, err := tenure.Apply(c.done, daily("cleo", c.every), after(c.at))
		if c.until == 0 {
			if err != nil || !changed {
				t.Errorf("%s: %v, want a grant", c.name, err)
			} else if want := c.every; want != 0 && next.Every != want || want == 0 && next.Every != day {
				t.Errorf("%s: the record then says every %s", c.name, next.Every)
			}
			continue
		}
		var held *tenure.HeldError
		if !errors.As(err, &held) || held.Why != tenure.WhyPeriod || !held.Until.Equal(after(c.until)) {
			t.Errorf("%s: %v, want it refused for the period until %s", c.name, err, c.until)
		}
	}
}

// TestJitterNeverSkipsASlot: a job that starts early or late by less than half
// of its period runs once in every slot.
func TestJitterNeverSkipsASlot(t *testing.T) {
	var rec tenure.Record
	for slot, jitter := range []int{0, 119, -119, 119, -120, 0, -60, 60, 1, -1} { // minutes, of a four-hour period
		start := after(time.Duration(slot)*4*time.Hour + time.Duration(jitter)*time.Minute)
		who := start.String()
		rec = must(t, rec, daily(who, 4*time.Hour), start)
		rec = must(t, rec, ask("release", who), start.Add(30*time.Second))
		if _, changed, err := tenure.Apply(rec, daily("twin", 4*time.Hour), start.Add(40*time.Second)); changed || !errors.Is(err, tenure.ErrHeld) {
			t.Errorf("slot %d was done twice: %v", slot, err)
		}
	}
}

// TestOneSuccessPerSlot: the work may be asked for at any times, fail, or take
// long. No slot has two successes. A claim in a slot without success is granted
// if the key is free.
func TestOneSuccessPerSlot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		every := rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.Int64Range(1, 200).Draw(t, "microseconds")) * time.Microsecond
		}).Draw(t, "every")
		var rec tenure.Record
		now, done := noon, map[int64]bool{}
		var grid time.Time
		slot := func(at time.Time) int64 { // from 2 slots before the grid on, so that no number is negative
			return int64((2*at.Sub(grid) + 5*every) / (2 * every))
		}
		for n := range rapid.IntRange(1, 60).Draw(t, "attempts") {
			now = now.Add(time.Duration(rapid.Int64Range(0, 300).Draw(t, "pause")) * time.Microsecond)
			who := fmt.Sprint(n)
			next, changed, err := tenure.Apply(rec, daily(who, every), now)
			if grid.IsZero() && err != nil {
				t.Fatalf("nothing has succeeded, and the work is refused: %v", err)
			}
			if !grid.IsZero() && (err == nil) == done[slot(now)] {
				t.Fatalf("%s after the first success, every %s: %v; done in this slot: %t", now.Sub(grid), every, err, done[slot(now)])
			}
			if !changed {
				continue
			}
			began := now
			now = now.Add(time.Duration(rapid.Int64Range(0, 300).Draw(t, "work")) * time.Microsecond)
			q := ask("release", who)
			q.Failed = rapid.Bool().Draw(t, "failed")
			if rec, _, err = tenure.Apply(next, q, now); err != nil {
				t.Fatal(err)
			}
			if !q.Failed {
				if grid.IsZero() {
					grid = began
				}
				done[slot(began)] = true
			}
		}
	})
}

// TestAnHourlyAttemptAtDailyWork: cron asks each hour on two machines. The work
// is done once in each slot of a day.
func TestAnHourlyAttemptAtDailyWork(t *testing.T) {
	const day = 24 * time.Hour
	var rec tenure.Record
	var done []time.Duration
	for at := time.Duration(0); at < 10*day; at += time.Hour {
		for _, machine := range []string{"a", "b"} {
			who := machine + at.String()
			next, changed, _ := tenure.Apply(rec, daily(who, day), after(at))
			if !changed {
				continue
			}
			rec = must(t, next, ask("release", who), after(at+30*time.Second))
			done = append(done, at)
		}
	}
	if len(done) != 11 || done[0] != 0 || done[1] != 12*time.Hour || done[10] != 9*day+12*time.Hour {
		t.Errorf("in ten days the work was done at %v, want at the first hour and at the beginning of ten slots", done)
	}
}

// TestFailureLeavesTheWorkDue: a failed, crashed or cancelled term does not
// count as a success, and does not hide the success before it.
func TestFailureLeavesTheWorkDue(t *testing.T) {
	for _, story := range []string{
		"0s acquire+daily ann; 5s release+failed ann",
		"0s acquire+daily ann",
		"0s acquire+daily ann; 5s revoke opal",
		"0s acquire+daily ann; 5s takeover opal; 6s release+failed opal",
	} {
		rec := play(t, story)
		if _, changed, err := tenure.Apply(rec, ask("acquire+daily", "bob"), after(time.Minute)); !changed {
			t.Errorf("%s: %v, want a grant", story, err)
		}
	}
	var held *tenure.HeldError
	rec := play(t, "-30m acquire+daily zoe; -29m30s release zoe; -10m acquire zed; -9m30s release+failed zed")
	_, _, err := tenure.Apply(rec, ask("acquire+daily", "bob"), noon)
	if !errors.As(err, &held) || held.Why != tenure.WhyPeriod || !held.Until.Equal(after(12*time.Hour-30*time.Minute)) {
		t.Errorf("after a success and a failure: %v, want the success to count", err)
	}
	// An operator's success counts, too.
	rec = play(t, "0s takeover opal; 5s release opal")
	if _, _, err := tenure.Apply(rec, ask("acquire+daily", "bob"), after(time.Hour)); !errors.Is(err, tenure.ErrHeld) {
		t.Errorf("after an operator did the work: %v, want the period to apply", err)
	}
	// A reservation opens the key for its owner. It does not lift the period.
	rec = play(t, "0s acquire+daily ann; 5s release ann; 6s reserve:bob opal")
	if _, _, err := tenure.Apply(rec, ask("acquire+daily", "bob"), after(time.Minute)); !errors.As(err, &held) || held.Why != tenure.WhyPeriod {
		t.Errorf("reserved for bob within the period: %v, want the period to apply", err)
	}
	if _, changed, err := tenure.Apply(rec, ask("acquire", "bob"), after(time.Minute)); !changed {
		t.Errorf("reserved for bob, who asks for no period: %v, want a grant", err)
	}
}

// TestLaw5ARenewalTakesNothingBack: the holder may not have heard of the
// shorter renewal, or a late copy of it may arrive after a longer one.
func TestLaw5ARenewalTakesNothingBack(t *testing.T) {
	rec := play(t, "0s acquire ann")
	short, long := ask("renew", "ann"), ask("renew", "ann")
	short.TTL, long.TTL = 10*time.Second, 5*time.Minute
	rec = must(t, rec, short, after(time.Second))
	if !rec.Deadline.Equal(after(time.Minute)) || rec.TTL != 10*time.Second {
		t.Errorf("shortened at 1s: deadline %s, TTL %s", rec.Deadline, rec.TTL)
	}
	rec = must(t, rec, ask("renew", "ann"), after(55*time.Second))
	if !rec.Deadline.Equal(after(65 * time.Second)) {
		t.Errorf("renewed with the shorter TTL at 55s: deadline %s", rec.Deadline)
	}
	rec = must(t, rec, long, after(time.Minute))
	rec = must(t, rec, short, after(61*time.Second))
	if !rec.Deadline.Equal(after(6 * time.Minute)) {
		t.Errorf("a late copy moved the deadline to %s", rec.Deadline)
	}
	// After the clock has stepped back, the old deadline would hold the key
	// until it has caught up. The renewal corrects it.
	rec = must(t, rec, ask("renew", "ann"), after(-time.Hour))
	if !rec.Deadline.Equal(after(-time.Hour + 10*time.Second)) {
		t.Errorf("renewed by a clock that stepped back: deadline %s", rec.Deadline)
	}
}

// TestTheTokenIsACounterOnAClock: it is max(previous + 1, above + 1, clock in
// microseconds).
func TestTheTokenIsACounterOnAClock(t *testing.T) {
	clock := fence.Token(noon.UnixMicro())
	for _, c := range []struct {
		name     string
		previous fence.Token
		above    fence.Token
		now      time.Time
		want     fence.Token
	}{
		{"the clock", 0, 0, noon, clock},
		{"the clock, in whole microseconds", 0, 0, noon.Add(1999 * time.Nanosecond), clock + 1},
		{"the counter in the same microsecond", clock, 0, noon, clock + 1},
		{"the counter when the clock stepped back", clock + 500, 0, noon, clock + 501},
		{"above", 5, clock + 100, noon, clock + 101},
		{"above, below the clock", 5, 7, noon, clock},
		{"above, below the counter", clock + 500, clock + 400, noon, clock + 501},
		{"the highest above", 5, tenure.MaxAbove, noon, tenure.MaxAbove + 1},
		{"the last token", fence.MaxToken - 1, 0, noon, fence.MaxToken},
		{"a clock before 1970", 0, 0, time.Date(1969, 12, 31, 23, 59, 59, 0, time.UTC), 1},
		{"a clock before 1970 that goes on", 41, 0, time.Date(1969, 1, 1, 0, 0, 0, 0, time.UTC), 42},
		{"a clock at 1970", 0, 0, time.UnixMicro(0), 1},
		{"a clock in year 1", 0, 0, time.Time{}.Add(time.Second), 1},
		{"a clock at the last token", 0, 0, time.UnixMicro(int64(fence.MaxToken)), fence.MaxToken},
	} {
		rec := play(t, "-2m acquire ann; -1m59s release ann")
		rec.Token, rec.History[0].Token = c.previous, c.previous
		if c.previous == 0 {
			rec = tenure.Record{}
		}
		for _, verb := range []string{"acquire", "takeover", "reserve:eve", "revoke"} {
			q := ask(verb, "bob")
			q.Above = c.above
			next, changed, err := tenure.Apply(rec, q, c.now)
			if err != nil || !changed || next.Token != c.want {
				t.Errorf("%s, %s: token %d, %v; want %d", c.name, verb, next.Token, err, c.want)
				continue
			}
			if err := next.Check(); err != nil {
				t.Errorf("%s, %s: %v", c.name, verb, err)
			}
		}
	}
}

// TestWhenTokensEndNothingChanges: the error for a key whose tokens are used up
// says what to do.
func TestWhenTokensEndNothingChanges(t *testing.T) {
	rec := play(t, "0s acquire ann; 5s release ann")
	rec.Token, rec.History[0].Token = fence.MaxToken, fence.MaxToken
	for _, verb := range []string{"acquire", "takeover", "reserve:eve", "revoke"} {
		next, changed, err := tenure.Apply(rec, ask(verb, "bob"), after(time.Minute))
		if !errors.Is(err, fence.ErrInvalid) || changed || next.Token != fence.MaxToken || len(next.History) != 1 {
			t.Errorf("%s: token %d, %v; want it invalid and nothing changed", verb, next.Token, err)
		}
	}
}

// TestAClockThatCannotBeRightIsRefused: no decision made by it could be undone
// once it is set right.
func TestAClockThatCannotBeRightIsRefused(t *testing.T) {
	rec := play(t, "0s acquire ann")
	for _, now := range []time.Time{
		{},
		time.Time{}.Add(time.Nanosecond), time.Time{}.AddDate(-1, 0, 0), time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC),
		time.UnixMicro(int64(fence.MaxToken) + 1), time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC), time.Date(300000, 1, 1, 0, 0, 0, 0, time.UTC),
	} {
		for _, verb := range []string{"renew", "renew+resume", "report+resume", "release", "acquire", "takeover", "reserve:eve", "revoke"} {
			who := "ann"
			if q := ask(verb, who); q.Verb.ByHand() || q.Verb == tenure.Acquire {
				who = "bob"
			}
			next, changed, err := tenure.Apply(rec, ask(verb, who), now)
			if !errors.Is(err, fence.ErrInvalid) || changed || next.Token != rec.Token || !next.Deadline.Equal(rec.Deadline) {
				t.Errorf("%s at %s: %v; want it invalid and nothing changed", verb, now, err)
			}
		}
	}
}

// TestTimesAreWholeMicrosecondsInUTC: whatever precision the store's clock and
// the request's durations have.
func TestTimesAreWholeMicrosecondsInUTC(t *testing.T) {
	now := time.Now().In(time.FixedZone("far", 5*3600)) // with a monotonic reading
	q := ask("acquire", "ann")
	q.TTL, q.HoldFor, q.Every = time.Second+999, time.Hour+1, time.Hour+1
	rec := must(t, tenure.Record{}, q, now)
	renew := ask("renew", "ann")
	renew.TTL = 2*time.Second + 999
	renewed := must(t, rec, renew, now.Add(time.Millisecond+1))
	reported := must(t, renewed, ask("report", "ann"), now.Add(2*time.Millisecond+1))
	released := must(t, reported, ask("release", "ann"), now.Add(3*time.Millisecond+1))
	for _, r := range []tenure.Record{rec, renewed, reported, released} {
		for name, at := range map[string]time.Time{
			"acquired": r.Acquired, "renewed": r.Renewed, "deadline": r.Deadline, "hold": r.HoldUntil, "progress": r.ProgressAt,
			"succeeded": r.Succeeded, "grid": r.Grid, "history": r.History[0].Acquired, "finished": r.History[0].Finished,
		} {
			if at != at.Round(0).UTC().Truncate(time.Microsecond) {
				t.Errorf("%s is %s", name, at)
			}
		}
		if r.TTL%time.Microsecond != 0 || r.Every%time.Microsecond != 0 {
			t.Errorf("TTL %s, every %s", r.TTL, r.Every)
		}
	}
}
