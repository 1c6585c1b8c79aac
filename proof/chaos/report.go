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

// Report is the result of a run.
type Report struct {
	Backend string `json:"backend"`
	Guarded bool   `json:"guarded"`
	Seed    uint64 `json:"seed"`
	Clients int    `json:"clients"`
	// Operators counts the operator processes, beside the clients.
	Operators int           `json:"operators"`
	Keys      int           `json:"keys"`
	Took      time.Duration `json:"took_ns"`

	Operations int `json:"operations"`
	Grants     int `json:"grants"`
	ByHand     int `json:"by_hand"`  // operators' acts that were confirmed
	Updates    int `json:"updates"`  // confirmed updates
	Refusals   int `json:"refusals"` // writes that guards refused as stale
	Unknown    int `json:"unknown"`  // operations of unknown outcome
	Lost       int `json:"lost"`     // confirmed updates that another overwrote, made without them
	// FirstLoss is when a run without guards first saw a loss. It is 0 if it
	// saw none before its end.
	FirstLoss time.Duration `json:"first_loss_ns,omitempty"`
	// ClockStepped says that the machine's clock was set during the run. The
	// laws that rest on the clock were not checked then.
	ClockStepped bool                `json:"clock_stepped,omitempty"`
	Faults       map[string]int      `json:"faults"`
	NeverFired   []string            `json:"never_fired,omitempty"` // faults that did not happen
	Violations   []history.Violation `json:"violations,omitempty"`
	// Page shows the violations as HTML. Timeline is the path of its file,
	// beside the histories.
	Page     []byte `json:"-"`
	Timeline string `json:"timeline,omitempty"`
}

func newReport(o Options, ops []history.Op, fired map[string]int, took time.Duration) *Report {
	r := &Report{
		Backend: o.Backend.Name, Guarded: !o.Bare, Seed: o.Seed, Clients: o.Clients,
		Operators: o.Operators, Keys: o.Keys, Took: took, Faults: fired, Operations: len(ops),
	}
	acts := map[fence.Grant]bool{} // a set: an act may be sent twice
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

// judge checks the history against the laws. Without guards it leaves out their
// laws: newReport counts the losses instead.
func (r *Report) judge(ops []history.Op) {
	r.Violations = history.Check(ops, history.Scope{Unguarded: !r.Guarded, Untimed: r.ClockStepped})
}

// draw writes the timeline of the violations.
func (r *Report) draw(folder string, ops []history.Op) error {
	var page bytes.Buffer
	title := fmt.Sprintf("Chaos on %s, seed %d: %d findings", r.Backend, r.Seed, len(r.Violations))
	if err := history.Timeline(&page, title, ops, r.Violations); err != nil {
		return err
	}
	r.Page, r.Timeline = page.Bytes(), filepath.Join(folder, "timeline.html")
	return os.WriteFile(r.Timeline, r.Page, 0o644)
}
