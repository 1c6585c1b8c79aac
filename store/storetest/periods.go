package storetest

import (
	"fmt"
	"time"

	"github.com/croft-dev/croft/tenure"
)

func periods() []check {
	return []check{
		{"once per period with jittered starts", oncePerPeriod},
		{"once per period with frequent attempts", frequentAttempts},
		{"work done is refused for half a period", refusedForHalfAPeriod},
		{"work done once is not done again", doneOnce},
		{"work that failed or was lost is due at once", failedIsDue},
		{"a hold keeps the key after success", holdAfterSuccess},
		{"a hold does not outlast a failure", holdAfterFailure},
		{"an operator is bound by neither hold nor period", operatorUnbound},
	}
}

func everyHour(key, owner string) tenure.Request {
	req := acquire(key, owner)
	req.Every = time.Hour
	return req
}

// oncePerPeriod starts the work on several machines in every window, as cron
// does. The first success fixes the windows. Each later start is early or late
// by less than half of the period. The work must be done exactly once in every
// window.
func oncePerPeriod(t *trial) {
	const key = "periods/jitter"
	period := time.Hour
	if t.Advance == nil {
		// Without control of the clock the check cannot place the starts. It
		// then tries just after the work, and when its window has ended.
		t.oneWindowAfterAnother(key)
		return
	}
	handles := t.handles(3)
	first := everyHour(key, "machine 0")
	start := t.must(first).Record.Acquired
	t.must(release(first))
	for window := range t.many(40, 10, 15) {
		var starts []time.Duration
		for range handles {
			starts = append(starts, time.Duration(t.rand.Int64N(int64(period)-2000))+1000-period/2)
		}
		done := 0
		for _, st := range inOrder(starts) {
			t.pass(start.Add(time.Duration(window+1) * period).Add(st.at))
			req := everyHour(key, fmt.Sprintf("machine %d", st.of))
			a := t.steps(handles[st.of], req)[0]
			if a.Err != nil {
				t.refused(a, tenure.WhyPeriod)
				continue
			}
			done++
			t.must(release(req))
		}
		if done != 1 {
			t.Fatalf("window %d, starts at %v: done %d times", window, starts, done)
		}
	}
}

type jittered struct {
	at time.Duration
	of int
}

// inOrder sorts starts by time, and keeps the number of the machine.
func inOrder(starts []time.Duration) []jittered {
	var all []jittered
	for of, at := range starts {
		i := len(all)
		for i > 0 && all[i-1].at > at {
			i--
		}
		all = append(all[:i], append([]jittered{{at, of}}, all[i:]...)...)
	}
	return all
}

func (t *trial) oneWindowAfterAnother(key string) {
	period := 8 * brief
	for range t.many(4, 2, 2) {
		for _, owner := range []string{"ann", "bob", "cleo"} {
			req := acquire(key, owner)
			req.Every = period
			if t.step(req).Err == nil {
				t.must(release(req))
			}
		}
		t.pass(t.get(t.store, key).Due(period))
		req := acquire(key, "ann")
		req.Every = period
		t.must(req) // when the window has ended, or a little later
		t.must(release(req))
		t.pass(t.get(t.store, key).Due(period))
	}
}

// frequentAttempts asks eight times in every period. The work must be done at
// the first success, and then at the beginning of each window, which is half a
// period before or after it.
func frequentAttempts(t *trial) {
	if t.Advance == nil {
		return
	}
	const key = "periods/frequent"
	first := everyHour(key, "ann")
	start := t.must(first).Record.Acquired
	t.must(release(first))
	for n := 1; n < 8*t.many(5, 3, 3); n++ {
		t.pass(start.Add(time.Duration(n) * time.Hour / 8))
		req := everyHour(key, "bob")
		a := t.step(req)
		if n%8 != 4 {
			t.refused(a, tenure.WhyPeriod)
			continue
		}
		if a.Err != nil {
			t.Fatalf("%d/8 of a period after the first success: %v, want a grant", n, a.Err)
		}
		t.must(release(req))
	}
	if rec := t.get(t.store, key); !rec.Grid.Equal(start) {
		t.Fatalf("the record's grid is at %s, want %s", clockTime(rec.Grid), clockTime(start))
	}
	// Another period begins a grid of its own.
	daily := acquire(key, "cleo")
	daily.Every = 24 * time.Hour
	t.pass(t.get(t.store, key).Due(daily.Every))
	start = t.must(daily).Record.Acquired
	t.must(release(daily))
	if rec := t.get(t.store, key); !rec.Grid.Equal(start) {
		t.Fatalf("after another period the grid is at %s, want %s", clockTime(rec.Grid), clockTime(start))
	}
}

func doneOnce(t *trial) {
	mine := acquire("periods/once", "ann")
	mine.Every = tenure.Once
	t.must(mine)
	t.must(fail(mine))
	mine = acquire(mine.Key, "ann")
	mine.Every = tenure.Once
	t.must(mine)
	t.must(release(mine))
	again := acquire(mine.Key, "bob")
	again.Every = tenure.Once
	t.refused(t.step(again), tenure.WhyPeriod)
	if t.Advance == nil {
		return
	}
	t.pass(t.now().Add(10 * tenure.MaxPeriod))
	t.sweep(t.store)
	t.refused(t.step(again), tenure.WhyPeriod)
}

func refusedForHalfAPeriod(t *trial) {
	mine := everyHour("periods/half", "ann")
	began := t.must(mine).Record.Acquired
	t.must(release(mine))
	a := t.step(everyHour(mine.Key, "bob"))
	t.refused(a, tenure.WhyPeriod)
	if rec := t.get(t.store, mine.Key); rec.Every != time.Hour || !rec.Succeeded.Equal(began) {
		t.Fatalf("the record says every %s, succeeded %s; want 1h and %s",
			rec.Every, clockTime(rec.Succeeded), clockTime(began))
	}
	// A request without a period is not refused because of one.
	other := acquire(mine.Key, "bob")
	t.must(other)
	t.must(fail(other))
	if t.Advance == nil {
		return
	}
	t.pass(began.Add(time.Hour/2 - time.Microsecond))
	t.refused(t.step(everyHour(mine.Key, "bob")), tenure.WhyPeriod)
	t.Advance(time.Microsecond)
	t.must(everyHour(mine.Key, "bob"))
}

func failedIsDue(t *trial) {
	mine := everyHour("periods/failed", "ann")
	t.must(mine)
	t.must(fail(mine))
	t.must(t.expiring(everyHour(mine.Key, "ann")))
	t.expire(mine.Key)
	mine = everyHour(mine.Key, "bob")
	t.must(mine)
	t.must(takeover(mine.Key))
	t.must(revoke(mine.Key))
	t.must(everyHour(mine.Key, "cleo"))
}

func holdAfterSuccess(t *trial) {
	mine := acquire("periods/hold", "ann")
	mine.HoldFor = long
	a := t.must(mine)
	if want := a.Now.Add(long); !a.Record.HoldUntil.Equal(want) {
		t.Fatalf("held until %s, want %s", clockTime(a.Record.HoldUntil), clockTime(want))
	}
	t.must(release(mine))
	for _, owner := range []string{"ann", "bob"} {
		t.refused(t.step(acquire(mine.Key, owner)), tenure.WhyHold)
	}
	if t.Advance != nil {
		t.pass(a.Record.HoldUntil.Add(-time.Microsecond))
		t.refused(t.step(acquire(mine.Key, "bob")), tenure.WhyHold)
	}
	short := acquire("periods/hold/short", "ann")
	short.HoldFor = brief
	until := t.must(short).Record.HoldUntil
	t.must(release(short))
	t.pass(until)
	t.must(acquire(short.Key, "bob"))
}

func holdAfterFailure(t *trial) {
	mine := acquire("periods/hold/failed", "ann")
	mine.HoldFor = 30 * 24 * time.Hour
	t.must(mine)
	t.must(fail(mine))
	mine = t.expiring(acquire(mine.Key, "bob"))
	mine.HoldFor = 30 * 24 * time.Hour
	t.must(mine)
	t.expire(mine.Key)
	t.must(acquire(mine.Key, "cleo"))
}

func operatorUnbound(t *trial) {
	for name, hand := range map[string]func(string) tenure.Request{
		"takeover": takeover, "revoke": revoke,
		"reserve": func(key string) tenure.Request { return reserve(key, "bob") },
	} {
		mine := everyHour("periods/operator/"+name, "ann")
		mine.HoldFor = long
		t.must(mine)
		t.must(release(mine))
		t.must(hand(mine.Key))
	}
}
