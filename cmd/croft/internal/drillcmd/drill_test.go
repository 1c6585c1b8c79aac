package drillcmd

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/internal/drill"
	"github.com/croft-dev/croft/tenure"
)

var drillBegan = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func drillAt(tenths int) time.Time {
	return drillBegan.Add(time.Duration(tenths) * 100 * time.Millisecond)
}

// TestADrillsBarShowsHoldingAbsenceAndRefusals: one column is a tenth of a
// second.
func TestADrillsBarShowsHoldingAbsenceAndRefusals(t *testing.T) {
	axis := &timeAxis{from: drillBegan, each: 100 * time.Millisecond, columns: 30}
	if got, want := axis.labels(), "|0        |1        |2"; got != want {
		t.Errorf("axis %q, want %q", got, want)
	}
	for name, c := range map[string]struct {
		term drill.Term
		want string
	}{
		"held":             {drill.Term{Acquired: drillAt(2), Finished: drillAt(6)}, "  ===="},
		"held for no time": {drill.Term{Acquired: drillAt(2), Finished: drillAt(2)}, "  ="},
		"stopped, woken and refused": {
			drill.Term{
				Acquired: drillAt(1), Finished: drillAt(8), Absent: []drill.Span{{From: drillAt(3), To: drillAt(12)}},
				Refused: []time.Time{drillAt(12), drillAt(14)},
			}, " ==-----....x x",
		},
		"killed":             {drill.Term{Acquired: drillAt(1), Finished: drillAt(8), Absent: []drill.Span{{From: drillAt(3)}}}, " ==-----"},
		"refused at once":    {drill.Term{Acquired: drillAt(0), Finished: drillAt(1), Refused: []time.Time{drillAt(0), drillAt(1)}}, "=x"},
		"beyond the axis":    {drill.Term{Acquired: drillAt(28), Finished: drillAt(99)}, strings.Repeat(" ", 28) + "="},
		"before the axis":    {drill.Term{Acquired: drillAt(-5), Finished: drillAt(1)}, "="},
		"refused in the end": {drill.Term{Acquired: drillAt(28), Finished: drillAt(30), Refused: []time.Time{drillAt(30)}}, strings.Repeat(" ", 28) + "=x"},
	} {
		if got := axis.bar(c.term); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// wrongDrill is a report that no sound store gives.
func wrongDrill() *drill.Report {
	return &drill.Report{
		Keys: "croft-drill/abc/", Dir: "/tmp/x", TTL: time.Second, Guarded: true, Processes: 5, Began: drillBegan, Took: 3 * time.Second,
		Scenes: []drill.Scene{{
			Name: "pause", Story: "a story", Key: "croft-drill/abc/pause",
			Steps: []drill.Step{
				{Name: "pause/one", Tried: "A renews", Expected: "refused", Happened: "accepted, although it is stale", Result: drill.Failed},
				{Name: "pause/two", Tried: "A writes", Expected: "refused", Happened: "written over B's result", Result: drill.Corrupted, Before: "b", After: "a", Lost: "B"},
				{Name: "pause/three", Tried: "B asks", Expected: "granted", Happened: "no answer\x1b[31m", Result: drill.NotDone},
			},
			Terms: []drill.Term{{Owner: "A", Token: 7, Cause: tenure.First, Acquired: drillAt(0), Finished: drillAt(10)}},
		}},
		Left: []string{"croft-drill/abc/pause"},
	}
}

func TestADrillThatWentWrongSaysSo(t *testing.T) {
	var out, errs bytes.Buffer
	a := &app{&cli.App{Stdout: &cli.Sink{W: &out}, Stderr: &errs}}
	a.printDrill(wrongDrill(), true)
	for _, want := range []string{
		"FAILED     A renews  refused    accepted, although it is stale\n",
		"CORRUPTED  A writes  refused    written over B's result\n",
		`NOT DONE   B asks    granted    "no answer\x1b[31m"` + "\n",
		"pause/two: A writes\n  before  b\n  after   a\n",
		"2 of 3 went WRONG",
		"1 could not be tried",
		"Kept: /tmp/x, and the keys under croft-drill/abc/\n",
		"pause  A      7      first   0.00   1.00  held   ===",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, out.String())
		}
	}
	if !strings.Contains(errs.String(), "croft-drill/abc/pause could not be let go of") {
		t.Errorf("stderr: %q", errs.String())
	}
}

func TestADrillThatWentWrongSaysSoInJSON(t *testing.T) {
	var out bytes.Buffer
	a := &app{&cli.App{Stdout: &cli.Sink{W: &out}, JSON: true}}
	a.printDrillJSON(wrongDrill(), "/store", true)
	want := `{"step":"pause/one","tried":"A renews","expected":"refused","happened":"accepted, although it is stale","ok":false,"result":"failed"}
{"step":"pause/two","tried":"A writes","expected":"refused","happened":"written over B's result","ok":false,"result":"corrupted"}
{"step":"pause/three","tried":"B asks","expected":"granted","happened":"no answer\u001b[31m","ok":false,"result":"not_done"}
{"summary":{"store":"/store","keys":"croft-drill/abc/","ttl":"1s","guarded":true,"processes":5,"took":"3s",` +
		`"steps":3,"ok":0,"failed":1,"corrupted":1,"not_done":1,` +
		`"owners":[{"key":"croft-drill/abc/pause","token":7,"owner":"A","cause":"first","acquired":"2026-01-02T12:00:00.000000Z","finished":"2026-01-02T12:00:01.000000Z","ended":""}],` +
		`"damage":[{"step":"pause/two","before":"b","after":"a"}],"kept":"/tmp/x","left":["croft-drill/abc/pause"]}}
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}
