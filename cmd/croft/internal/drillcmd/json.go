package drillcmd

import (
	"time"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/drill"
	"github.com/croft-dev/croft/tenure"
)

// drillStepView is one step of a drill in JSON. The field names and the names
// of steps never change.
type drillStepView struct {
	Step     string       `json:"step"`
	Tried    string       `json:"tried"`
	Expected string       `json:"expected"`
	Happened string       `json:"happened"`
	OK       bool         `json:"ok"`
	Result   drill.Result `json:"result"`
}

// drillSummaryView is the last object of a drill's JSON.
type drillSummaryView struct {
	Store     string            `json:"store"`
	Keys      string            `json:"keys"`
	TTL       string            `json:"ttl"`
	Guarded   bool              `json:"guarded"`
	Processes int               `json:"processes"`
	Took      string            `json:"took"`
	Steps     int               `json:"steps"`
	OK        int               `json:"ok"`
	Failed    int               `json:"failed"`
	Corrupted int               `json:"corrupted"`
	NotDone   int               `json:"not_done"`
	Owners    []drillOwnerView  `json:"owners"`
	Damage    []drillDamageView `json:"damage"`
	Kept      string            `json:"kept,omitempty"`
	Left      []string          `json:"left,omitempty"`
}

// drillOwnerView is one owner's time with a key.
type drillOwnerView struct {
	Key      string       `json:"key"`
	Token    fence.Token  `json:"token"`
	Owner    string       `json:"owner"`
	Cause    tenure.Cause `json:"cause"`
	Acquired cli.When     `json:"acquired"`
	Finished cli.When     `json:"finished"`
	Ended    tenure.End   `json:"ended"`
}

// drillDamageView shows a file before and after a stale write.
type drillDamageView struct {
	Step   string `json:"step"`
	Before string `json:"before"`
	After  string `json:"after"`
}

func (a *app) printDrillJSON(r *drill.Report, storeName string, kept bool) {
	for _, s := range r.Steps() {
		a.Print(a.drillStep(s))
	}
	a.printDrillSummary(r, storeName, kept)
}

func (a *app) drillStep(s drill.Step) drillStepView {
	return drillStepView{
		Step: s.Name, Tried: s.Tried, Expected: s.Expected, Happened: a.Redact(s.Happened),
		OK: s.Result == drill.OK, Result: s.Result,
	}
}

func (a *app) printDrillSummary(r *drill.Report, storeName string, kept bool) {
	sum := drillSummaryView{
		Store: storeName, Keys: r.Keys, TTL: r.TTL.String(), Guarded: r.Guarded, Processes: r.Processes,
		Took:  r.Took.Round(time.Millisecond).String(),
		Steps: len(r.Steps()), OK: r.Count(drill.OK), Failed: r.Count(drill.Failed),
		Corrupted: r.Count(drill.Corrupted), NotDone: r.Count(drill.NotDone),
		Owners: []drillOwnerView{}, Damage: []drillDamageView{}, Left: r.Left,
	}
	if kept {
		sum.Kept = r.Dir
	}
	for _, s := range r.Steps() {
		if s.Before != s.After {
			sum.Damage = append(sum.Damage, drillDamageView{s.Name, s.Before, s.After})
		}
	}
	for _, scene := range r.Scenes {
		for _, t := range scene.Terms {
			sum.Owners = append(sum.Owners, drillOwnerView{
				Key: scene.Key, Token: t.Token, Owner: t.Owner, Cause: t.Cause,
				Acquired: cli.When(t.Acquired), Finished: cli.When(t.Finished), Ended: t.Ended,
			})
		}
	}
	a.Print(map[string]any{"summary": sum})
}
