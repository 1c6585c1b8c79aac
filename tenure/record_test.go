package tenure_test

import (
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// TestStateAtAndAlive: a record whose deadline has passed is free, whatever it
// was before.
func TestStateAtAndAlive(t *testing.T) {
	for _, c := range []struct {
		story string
		at    time.Duration
		state tenure.State
		alive bool
	}{
		{"", 0, tenure.Free, false},
		{"0s acquire ann", 0, tenure.Held, true},
		{"0s acquire ann", time.Minute - time.Microsecond, tenure.Held, true},
		{"0s acquire ann", time.Minute, tenure.Free, false},
		{"0s acquire ann", time.Hour, tenure.Free, false},
		{"0s acquire ann; 5s release ann", 5 * time.Second, tenure.Free, false},
		{"0s acquire ann; 5s release ann", 4 * time.Second, tenure.Free, false}, // the clock stepped back
		{"0s acquire+hold ann; 5s release ann", 6 * time.Second, tenure.Free, false},
		{"0s reserve:ann opal", 59 * time.Second, tenure.Reserved, false},
		{"0s reserve:ann opal", time.Minute, tenure.Free, false},
		{"0s revoke opal", 0, tenure.Free, false},
		{"0s revoke opal", -time.Second, tenure.Free, false},
		{"0s takeover opal", 59 * time.Second, tenure.Held, true},
	} {
		rec := play(t, c.story)
		if state, alive := rec.StateAt(after(c.at)), rec.Alive(after(c.at)); state != c.state || alive != c.alive {
			t.Errorf("%q at %s: %s, alive %v; want %s, %v", c.story, c.at, state, alive, c.state, c.alive)
		}
	}
}

// TestQuietIsAfterAllThatAClaimMustRespect: and the record is droppable one
// retention later, not before.
func TestQuietIsAfterAllThatAClaimMustRespect(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []struct {
		story string
		quiet time.Duration
	}{
		{"0s acquire ann", time.Minute},
		{"0s acquire ann; 50s renew ann", 110 * time.Second},
		{"0s acquire ann; 5s release ann", 5 * time.Second},
		{"0s acquire ann; 5s release+failed ann", 5 * time.Second},
		{"0s acquire ann; 5s revoke opal", 5 * time.Second},
		{"0s reserve:bob opal", time.Minute},
		{"0s acquire+hold ann; 5s release ann", time.Hour},
		{"0s acquire+hold ann; 5s release+failed ann", 5 * time.Second},
		{"0s acquire+hold ann; 5s release ann; 6s revoke opal", 6 * time.Second},
		{"0s acquire+daily ann; 5s release ann", day},
		{"0s acquire+daily ann; 5s release+failed ann", 5 * time.Second},
		{"0s acquire+daily ann; 5s release ann; 6s acquire bob; 7s release+failed bob", day},
		// The clock stepped back: the token is of noon.
		{"0s acquire ann; -1h renew ann", 0},
		{"0s acquire ann; -1h release ann", 0},
	} {
		rec := play(t, c.story)
		if !rec.Quiet().Equal(after(c.quiet)) {
			t.Errorf("%s: quiet at %s, want %s", c.story, rec.Quiet(), after(c.quiet))
		}
		if rec.Droppable(after(c.quiet+day-time.Microsecond), day) || !rec.Droppable(after(c.quiet+day), day) {
			t.Errorf("%s: not dropped exactly a retention after it is quiet", c.story)
		}
	}
}

// TestLaw2ATokenAheadOfTheClockIsNotForgotten: the record stays until the clock
// alone would give a higher token.
func TestLaw2ATokenAheadOfTheClockIsNotForgotten(t *testing.T) {
	const retention = 24 * time.Hour
	q := ask("acquire", "ann")
	q.Above = fence.Token(after(1000 * time.Hour).UnixMicro())
	rec := must(t, tenure.Record{}, q, noon)
	rec = must(t, rec, ask("release", "ann"), after(time.Second))
	if rec.Droppable(after(1000*time.Hour+retention), retention) {
		t.Errorf("token %d may be forgotten while it is less than a retention behind the clock", rec.Token)
	}
	later := after(1000*time.Hour + retention + time.Millisecond)
	if !rec.Droppable(later, retention) {
		t.Errorf("token %d may not be forgotten when the clock has left it behind", rec.Token)
	}
	if next := must(t, tenure.Record{}, ask("acquire", "bob"), later); next.Token <= rec.Token {
		t.Errorf("after it was forgotten token %d follows %d", next.Token, rec.Token)
	}
}
