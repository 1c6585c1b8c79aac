package drillcmd

import (
	"fmt"
	"slices"
	"strings"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/internal/drill"
	"github.com/croft-dev/croft/tenure"
)

// drillVerdicts has the verdict of a stage in which all steps were right.
var drillVerdicts = map[string]string{
	"expiry":        "granted when the time was over, as it must be",
	"stale-release": "refused as it must be",
	"renew-failure": "over in time, as it must be",
	"stale-write":   "refused as it must be",
}

// drillSpace removes the drill's namespace from the names of series.
var drillSpace = strings.NewReplacer(`{namespace="croft-drill"}`, "", `{namespace="croft-drill",`, "{",
	`,namespace="croft-drill"`, "")

func drillVerdict(s drill.Scene) cli.Cell {
	good := cli.Cell{Text: drillVerdicts[s.Name], Colour: cli.Green}
	for _, step := range s.Steps {
		switch step.Result {
		case drill.Failed, drill.Corrupted:
			return cli.Cell{Text: "NOT as it must be", Colour: cli.Red}
		case drill.NotDone:
			good = cli.Cell{Text: "not proved", Colour: cli.Yellow}
		}
	}
	return good
}

// printStaged prints a staged drill for people. For every stage it prints the
// steps, which include the metrics that moved, and what an engineer on call
// would have seen.
func (a *app) printStaged(r *drill.Report, kept bool) {
	var before drill.Metrics
	shown := *r
	shown.Scenes = slices.Clone(r.Scenes)
	// All keys of a drill are in one namespace. Do not repeat it on every line.
	for i := range shown.Scenes {
		steps := slices.Clone(shown.Scenes[i].Steps)
		for j := range steps {
			steps[j].Tried = drillSpace.Replace(steps[j].Tried)
		}
		shown.Scenes[i].Steps = steps
	}
	fmt.Fprintf(a.Stdout, "Metrics are those of all processes together, of namespace croft-drill.\n\n")
	a.printDrillSteps(&shown, func(s drill.Scene) {
		a.printOnCall(s, before)
		before = s.Metrics
	})
	a.printDrillDamage(r)
	a.printDrillEnd(r, kept)
}

// printOnCall prints the alerts that a stage has brought nearer, what croft
// show and croft history say of the key, and the verdict.
func (a *app) printOnCall(s drill.Scene, before drill.Metrics) {
	style := a.Palette()
	said := func(name, text string) {
		fmt.Fprintf(a.Stdout, "    %s%s\n", style.Paint(cli.Faint, fmt.Sprintf("%-15s", name)), text)
	}
	if !s.Record.IsZero() {
		name := "alerts"
		for _, alert := range alertsOf(before, s.Metrics) {
			said(name, fmt.Sprintf("%s, %s: %s", alert.Alert, style.Paint(cli.Yellow, alert.State), alert.text))
			name = ""
		}
		if name != "" {
			said(name, "none on its way")
		}
		var facts []string
		for _, f := range cli.DescribeRecord(style, s.Record, s.Now) {
			switch f[0] {
			case "state", "owner", "last owner", "token", "terms":
				facts = append(facts, f[0]+" "+f[1])
			}
		}
		said("croft show", strings.Join(facts, "; "))
		t := a.Table("    croft history", "TOKEN", "WHEN", "OWNER", "CAUSE", "FOR", "ENDED")
		for i := len(s.Record.History) - 1; i >= 0; i-- {
			row := cli.RowOfTerm(s.Record, s.Record.History[i], s.Now)
			t.Row(append([]cli.Cell{{}}, row[:len(row)-1]...)...)
		}
		t.Flush()
	}
	verdict := drillVerdict(s)
	said("verdict", style.Paint(verdict.Colour, verdict.Text))
}

// drillStageView is one stage of a drill in JSON.
type drillStageView struct {
	Stage   string             `json:"stage"`
	Story   string             `json:"story"`
	Key     string             `json:"key"`
	OK      bool               `json:"ok"`
	Verdict string             `json:"verdict"`
	Steps   []drillStepView    `json:"steps"`
	Metrics []drillMetricView  `json:"metrics"`
	Alerts  []drillAlertView   `json:"alerts"`
	Record  cli.RecordView     `json:"record"`
	History []cli.TransferView `json:"history"`
}

// drillMetricView is a metric before and after a stage.
type drillMetricView struct {
	Metric   string  `json:"metric"`
	Before   float64 `json:"before"`
	After    float64 `json:"after"`
	Expected string  `json:"expected"`
	OK       bool    `json:"ok"`
}

func (a *app) printStagedJSON(r *drill.Report, storeName string, kept bool) {
	var before drill.Metrics
	for _, s := range r.Scenes {
		verdict := drillVerdict(s)
		v := drillStageView{
			Stage: s.Name, Story: s.Story, Key: s.Key, OK: verdict.Colour == cli.Green, Verdict: verdict.Text,
			Steps: []drillStepView{}, Metrics: []drillMetricView{}, Alerts: alertsOf(before, s.Metrics),
			History: []cli.TransferView{},
		}
		before = s.Metrics
		for _, step := range s.Steps {
			if m := step.Metric; m != nil {
				v.Metrics = append(v.Metrics,
					drillMetricView{m.Series, m.From, m.To, step.Expected, step.Result == drill.OK})
				continue
			}
			v.Steps = append(v.Steps, a.drillStep(step))
		}
		rec := s.Record
		if rec.IsZero() {
			rec.Key, rec.State = s.Key, tenure.Free
		}
		v.Record = cli.ViewOf(rec, s.Now)
		for i := len(rec.History) - 1; i >= 0; i-- {
			v.History = append(v.History, cli.TransferOf(rec, rec.History[i], s.Now))
		}
		a.Print(v)
	}
	a.printDrillSummary(r, storeName, kept)
}
