package storetest

import (
	"errors"
	"time"

	"github.com/croft-dev/croft/internal/test/suite"
	"github.com/croft-dev/croft/tenure"
)

func deadlines() []check {
	return []check{
		{"all clients see one clock", oneClock},
		{"law 4: no grant before the deadline", noGrantBeforeDeadline},
		{"a deadline is the store's time and the TTL", deadlineIsNowAndTTL},
		{"a report does not move the deadline", reportKeepsDeadline},
	}
}

// noGrantBeforeDeadline asks for a held key until it is granted. If the clock
// can be set, it also asks at the exact edge of the deadline.
func noGrantBeforeDeadline(t *trial) {
	other := t.open()
	for range t.many(5, 2, 2) {
		mine := t.expiring(acquire("laws/4", "ann"))
		held := t.must(mine).Record
		if t.Advance != nil {
			t.Advance(held.Deadline.Sub(t.now()) - time.Microsecond)
			t.refused(t.steps(other, acquire(mine.Key, "bob"))[0], tenure.WhyHeld)
			t.must(report(mine, "on time"))
			t.Advance(time.Microsecond)
			t.refused(t.step(report(mine, "late")), tenure.WhyExpired)
		}
		deadline := held.Deadline
		next := acquire(mine.Key, "bob")
		for {
			a := t.steps(other, next)[0]
			if a.Err == nil {
				if a.Record.Acquired.Before(deadline) {
					t.Fatalf("granted at %s, the deadline was %s", clockTime(a.Record.Acquired), clockTime(deadline))
				}
				break
			}
			if !errors.Is(a.Err, tenure.ErrHeld) || !a.Now.Before(deadline) {
				t.Fatalf("refused at %s, the deadline was %s: %v", clockTime(a.Now), clockTime(deadline), a.Err)
			}
			t.pass(a.Now.Add(time.Millisecond))
		}
		t.must(release(next))
	}
}

func deadlineIsNowAndTTL(t *trial) {
	for _, ttl := range []time.Duration{tenure.MinTTL, brief, 1234567 * time.Microsecond, time.Minute, tenure.MaxTTL} {
		mine := acquire("deadlines/"+ttl.String(), "ann")
		mine.TTL = ttl
		a := t.must(mine)
		if want := a.Now.Add(ttl); !a.Record.Deadline.Equal(want) {
			t.Fatalf("acquired for %s at %s until %s", ttl, clockTime(a.Now), clockTime(a.Record.Deadline))
		}
		again := resume(mine)
		again.TTL = tenure.MaxTTL
		if a = t.must(again); !a.Record.Deadline.Equal(a.Now.Add(tenure.MaxTTL)) || a.Record.TTL != tenure.MaxTTL {
			t.Fatalf("renewed at %s until %s with TTL %s", clockTime(a.Now), clockTime(a.Record.Deadline), a.Record.TTL)
		}
		// A renewal without a TTL keeps the lease's TTL. A renewal with a
		// shorter TTL does not shorten the current deadline.
		t.aLittleLater()
		if a = t.must(renew(mine)); !a.Record.Deadline.Equal(a.Now.Add(tenure.MaxTTL)) {
			t.Fatalf("renewed at %s until %s, the lease's TTL is %s",
				clockTime(a.Now), clockTime(a.Record.Deadline), tenure.MaxTTL)
		}
		until := a.Record.Deadline
		if a = t.must(briefly(renew(mine))); !a.Record.Deadline.Equal(until) || a.Record.TTL != brief {
			t.Fatalf("renewed for %s: until %s with TTL %s, it was until %s",
				brief, clockTime(a.Record.Deadline), a.Record.TTL, clockTime(until))
		}
	}
}

func reportKeepsDeadline(t *trial) {
	mine := acquire("deadlines/report", "ann")
	granted := t.must(mine)
	t.aLittleLater()
	a := t.must(report(mine, "half"))
	switch {
	case !a.Record.Deadline.Equal(granted.Record.Deadline):
		t.Fatalf("a report moved the deadline from %s to %s",
			clockTime(granted.Record.Deadline), clockTime(a.Record.Deadline))
	case a.Record.Progress != "half" || !a.Record.ProgressAt.Equal(a.Now):
		t.Fatalf("a report at %s left %q at %s", clockTime(a.Now), a.Record.Progress, clockTime(a.Record.ProgressAt))
	}
}

// oneClock compares the times that different clients get. If a store decided by
// its clients' clocks, a client whose clock is ahead could take a key that
// another client holds.
func oneClock(t *trial) {
	handles := t.handles(3)
	var last time.Time
	for n := range t.many(30, 6, 9) {
		st := handles[n%len(handles)]
		now, err := st.Now(t.ctx)
		if err != nil {
			t.Fatalf("Now: %v", err)
		}
		if flaw := suite.BadTime(now); flaw != "" {
			t.Fatalf("Now %s", flaw)
		}
		if now.Add(t.Grain).Before(last) {
			t.Fatalf("one client is told %s, another after it %s", clockTime(last), clockTime(now))
		}
		a := t.steps(handles[(n+1)%len(handles)], acquire("deadlines/clock", "ann"))[0]
		if a.Now.Add(t.Grain).Before(now) {
			t.Fatalf("one client is told %s, the answer to another after it was decided at %s",
				clockTime(now), clockTime(a.Now))
		}
		last = a.Now
		if t.Advance != nil {
			t.Advance(time.Millisecond)
		}
	}
}
