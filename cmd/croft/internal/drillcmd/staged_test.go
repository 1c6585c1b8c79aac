package drillcmd

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/drill"
	"github.com/croft-dev/croft/tenure"
)

// TestTheAlertsOfADrillAreThoseOfTheRules compares the drill's table of alerts
// with the rules for Prometheus.
func TestTheAlertsOfADrillAreThoseOfTheRules(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../../observe/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range drillAlerts {
		_, rule, found := strings.Cut(string(text), "- alert: "+a.name+"\n")
		if !found {
			t.Errorf("there is no alert %s", a.name)
			continue
		}
		rule, _, _ = strings.Cut(rule, "annotations:")
		for _, want := range []string{a.metric, "[" + a.window + "]", fmt.Sprintf("> %g\n", a.above), "for: " + a.lasts + "\n"} {
			if !strings.Contains(rule, want) {
				t.Errorf("%s: the rule has no %q:\n%s", a.name, want, rule)
			}
		}
	}
}

func TestAnAlertIsOnItsWayWhenAStageBroughtItNearer(t *testing.T) {
	t.Parallel()
	lost := func(n float64) drill.Metrics {
		return drill.Metrics{`croft_leases_lost_total{loss="expired",namespace="x"}`: n, `croft_leases_lost_total{loss="unreachable",namespace="x"}`: 1, `croft_leases_lost_total{loss="closed",namespace="x"}`: 9}
	}
	if got := alertsOf(lost(2), lost(2)); len(got) != 0 {
		t.Errorf("nothing has happened: %+v", got)
	}
	if got := alertsOf(nil, lost(3)); len(got) != 1 || got[0].Alert != "CroftLeasesLost" || got[0].State != "below" || got[0].Value != 3 {
		t.Errorf("3 lost: %+v", got)
	}
	if got := alertsOf(lost(3), lost(4)); len(got) != 1 || got[0].State != "pending" {
		t.Errorf("4 lost: %+v", got)
	}
	owned := drill.Metrics{`croft_operations_total{namespace="x",operation="renew",outcome="ok"}`: 19}
	owned[`croft_operations_total{namespace="x",operation="release",outcome="not_owned"}`] = 1
	if got := alertsOf(nil, owned); len(got) != 1 || got[0].State != "below" || got[0].Value != 0.05 {
		t.Errorf("1 of 20: %+v", got)
	}
}

// TestADrillsMeterCountsUnderTheDocumentedNames: the meter reads every kind of
// metric.
func TestADrillsMeterCountsUnderTheDocumentedNames(t *testing.T) {
	t.Parallel()
	m := drillMeter()
	m.Event(croft.Event{Kind: croft.EventAcquired, Key: "a/b", Token: 1, Cause: tenure.First, TTL: time.Minute, Wait: 2 * time.Second})
	m.Write("http://127.0.0.1:1", fence.Stamp{Key: "a/b"}, &fence.StaleError{})
	m.Write("http://127.0.0.1:1", fence.Stamp{Key: "a/b"}, errors.New("something else"))
	got, err := m.Read()
	if err != nil {
		t.Fatal(err)
	}
	for series, want := range map[string]float64{
		`croft_transfers_total{cause="first",namespace="a"}`:                     1,
		`croft_leases_held{namespace="a"}`:                                       1,
		`croft_lease_wait_seconds_sum{namespace="a",outcome="acquired"}`:         2,
		`croft_guarded_writes_total{guard="http",namespace="a",outcome="stale"}`: 1,
	} {
		if got[series] != want {
			t.Errorf("%s is %g, want %g; all: %v", series, got[series], want, got)
		}
	}
}

func TestAStagedDrillThatWentWrongSaysSo(t *testing.T) {
	t.Parallel()
	report := &drill.Report{
		Keys: "croft-drill/abc/", TTL: time.Second, Guarded: true, Processes: 3, Began: drillBegan, Took: 3 * time.Second,
		Scenes: []drill.Scene{
			{
				Name: "stale-release", Story: "a story", Key: "croft-drill/abc/staged",
				Steps: []drill.Step{
					{Name: "stale-release/stale-release", Tried: "A releases", Expected: "refused", Happened: "accepted, although it is stale", Result: drill.Failed},
					{
						Name: "stale-release/metric-lost", Tried: `croft_leases_lost_total{loss="expired",namespace="croft-drill"}`, Expected: "rises by 1", Happened: "0 → 2", Result: drill.Failed,
						Metric: &drill.Movement{Series: `croft_leases_lost_total{loss="expired",namespace="croft-drill"}`, To: 2},
					},
				},
			},
			{Name: "stale-write", Story: "another", Steps: []drill.Step{{Name: "stale-write/left-out", Tried: "left out", Expected: "played", Happened: "rests on it", Result: drill.NotDone}}},
		},
	}
	var out, errs bytes.Buffer
	a := &app{&cli.App{Stdout: &cli.Sink{W: &out}, Stderr: &errs}}
	a.printStaged(report, false)
	for _, want := range []string{
		"FAILED    A releases                               refused     accepted, although it is stale\n",
		`FAILED    croft_leases_lost_total{loss="expired"}  rises by 1  0 → 2` + "\n",
		"    verdict        NOT as it must be\n",
		"    verdict        not proved\n",
		"2 of 3 went WRONG",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, out.String())
		}
	}
	out.Reset()
	a.JSON = true
	a.printStagedJSON(report, "/store", false)
	for _, want := range []string{
		`{"stage":"stale-release",`, `"ok":false,"verdict":"NOT as it must be"`,
		`"metrics":[{"metric":"croft_leases_lost_total{loss=\"expired\",namespace=\"croft-drill\"}","before":0,"after":2,"expected":"rises by 1","ok":false}]`,
		`{"stage":"stale-write",`, `"verdict":"not proved"`, `"failed":2,"corrupted":0,"not_done":1,`,
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, out.String())
		}
	}
}
