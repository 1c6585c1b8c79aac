package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/tenure"
)

// TestNoTimeOfTheStoreLiesAhead: a store with a clock of whole seconds says a
// time that lies before those in its records. No past time is then printed as a
// future one, and no lease has more time left than its TTL.
func TestNoTimeOfTheStoreLiesAhead(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	ahead := now.Add(1500 * time.Millisecond)
	held := tenure.Record{
		Key: "k", State: tenure.Held, Acquired: ahead, Renewed: ahead, Deadline: ahead.Add(20 * time.Second),
		TTL: 20 * time.Second, Progress: "half", ProgressAt: ahead,
	}
	released := held
	released.State, released.Ended, released.Deadline = tenure.Free, tenure.EndReleased, ahead.Add(time.Second)
	for _, rec := range []tenure.Record{held, released} {
		text := ""
		for _, line := range DescribeRecord(Palette(false), rec, now) {
			text += line[0] + " " + line[1] + "\n"
		}
		term := tenure.Term{Acquired: ahead, Ended: rec.Ended, Finished: rec.Deadline}
		for _, cell := range RowOfTerm(rec, term, now) {
			text += cell.Text + "\n"
		}
		for _, wrong := range []string{" in ", "in 1", "-1", "-2", "21s"} {
			if strings.Contains(text, wrong) {
				t.Errorf("%s: %q is in\n%s", rec.State, wrong, text)
			}
		}
		if rec.State == tenure.Held && !strings.Contains(text, "20s left") {
			t.Errorf("not all of its time is left:\n%s", text)
		}
	}
}
