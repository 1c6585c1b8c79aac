package chaos

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/proof/history"
	"github.com/croft-dev/croft/tenure"
)

// Report is what a run came to.
type Report struct {
	Backend string `json:"backend"`
	Guarded bool   `json:"guarded"`
	Seed    uint64 `json:"seed"`
	Clients int    `json:"clients"`
	// Operators are processes beside the clients.
	Operators int           `json:"operators"`
	Keys      int           `json:"keys"`
	Took      time.Duration `json:"took_ns"`

	Operations int `json:"operations"`
	Grants     int `json:"grants"`
	ByHand     int `json:"by_hand"`  // what operators did and were told was done
	Updates    int `json:"updates"`  // that their writers were told were made
	Refusals   int `json:"refusals"` // writes that guards refused because a newer owner had been admitted
	Unknown    int `json:"unknown"`  // operations whose outcome their client never knew
	Lost       int `json:"lost"`     // updates that were made and then overwritten by one made without them
	// FirstLoss is when a loss was first seen, in a run without guards; 0 if none was before its end.
	FirstLoss time.Duration `json:"first_loss_ns,omitempty"`
	// ClockStepped says that the machine's clock was set during the run, so that what rests on it was not judged.
	ClockStepped bool                `json:"clock_stepped,omitempty"`
	Faults       map[string]int      `json:"faults"`
	NeverFired   []string            `json:"never_fired,omitempty"` // faults for which there was no time
	Violations   []history.Violation `json:"violations,omitempty"`
	// Page shows the violations; Timeline is the file it is in, in the folder of the histories.
	Page     []byte `json:"-"`
	Timeline string `json:"timeline,omitempty"`
}

func newReport(o Options, ops []history.Op, fired map[string]int, took time.Duration) *Report {
	r := &Report{
		Backend: o.Backend.Name, Guarded: !o.Bare, Seed: o.Seed, Clients: o.Clients,
		Operators: o.Operators, Keys: o.Keys, Took: took, Faults: fired, Operations: len(ops),
	}
	acts := map[fence.Grant]bool{} // one may be asked for twice
	for _, op := range ops {
		switch {
		case op.Kind == history.Fault || op.Kind == history.Rewind:
			r.Operations--
		case op.Open():
			r.Unknown++
		case op.Kind == history.Write && op.Outcome == history.Stale:
			r.Refusals++
		case op.Kind == history.Lease && op.Verb == tenure.Acquire && op.Outcome == history.OK:
			r.Grants++
		case op.Kind == history.Lease && op.Verb.ByHand() && op.Outcome == history.OK:
			acts[op.Call.Grant] = true
		}
	}
	r.ByHand = len(acts)
	for _, key := range history.Keys(ops) {
		t := history.Count(key, ops)
		r.Updates += t.Confirmed
		r.Lost += len(t.Lost)
	}
	return r
}

// judge holds the history against the laws. Without guards, what guards promise is left out: it is counted instead.
func (r *Report) judge(ops []history.Op) {
	r.Violations = history.Check(ops, history.Terms{Unguarded: !r.Guarded, Untimed: r.ClockStepped})
}

// draw makes the page of the violations.
func (r *Report) draw(folder string, ops []history.Op) error {
	var page bytes.Buffer
	title := fmt.Sprintf("Chaos on %s, seed %d: %d findings", r.Backend, r.Seed, len(r.Violations))
	if err := history.Timeline(&page, title, ops, r.Violations); err != nil {
		return err
	}
	r.Page, r.Timeline = page.Bytes(), filepath.Join(folder, "timeline.html")
	return os.WriteFile(r.Timeline, r.Page, 0o644)
}
