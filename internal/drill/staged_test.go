package drill_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/drill"
)

// blind marks a worker whose meter counts nothing.
const blind = "blind"

// testMeter counts the metrics that the staged drill checks.
func testMeter() *drill.Meter {
	var mu sync.Mutex
	counted := drill.Metrics{}
	add := func(n int, format string, labels ...any) {
		mu.Lock()
		defer mu.Unlock()
		if os.Getenv(worker) != blind {
			counted[fmt.Sprintf(format, labels...)] += float64(n)
		}
	}
	return &drill.Meter{
		Event: func(e croft.Event) {
			switch e.Kind {
			case croft.EventCall:
				add(e.Count, `croft_operations_total{operation=%q,outcome=%q}`, e.Verb, e.Outcome)
			case croft.EventAcquired:
				add(1, `croft_transfers_total{cause=%q}`, e.Cause)
			case croft.EventLost:
				add(1, `croft_leases_lost_total{loss=%q}`, e.Loss)
			case croft.EventRenewFailed:
				add(1, `croft_renew_failures_total{}`)
			}
		},
		Write: func(_ string, _ fence.Stamp, err error) {
			outcome := "admitted"
			if err != nil {
				outcome = "stale"
			}
			add(1, `croft_guarded_writes_total{guard="http",outcome=%q}`, outcome)
		},
		Read: func() (drill.Metrics, error) {
			mu.Lock()
			defer mu.Unlock()
			return maps.Clone(counted), nil
		},
	}
}

func runStaged(t *testing.T, o drill.Options) *drill.Report {
	t.Helper()
	o.Meter = testMeter
	report, err := drill.RunStaged(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range report.Steps() {
		t.Logf("%-9s  %-28s %s: %s", s.Result, s.Name, s.Tried, s.Happened)
	}
	if len(report.Scenes) != 4 {
		t.Errorf("%d stages, want 4", len(report.Scenes))
	}
	if len(report.Left) > 0 {
		t.Errorf("left: %v", report.Left)
	}
	return report
}

func TestASoundStoreAndFencePassInStagesAndItShowsInTheMetrics(t *testing.T) {
	t.Parallel()
	o := options(t, filepath.Join(t.TempDir(), "store"))
	r := runStaged(t, o)
	if !r.Good() {
		t.Error("not everything was as it should be")
	}
	for i, scene := range r.Scenes {
		metrics := 0
		for _, s := range scene.Steps {
			if s.Metric != nil {
				metrics++
			}
		}
		if metrics == 0 || len(scene.Metrics) == 0 || scene.Record.Terms != int64([]int{2, 2, 3, 3}[i]) || scene.Now.IsZero() {
			t.Errorf("%s: %d metrics looked at, %v, record %+v at %s", scene.Name, metrics, scene.Metrics, scene.Record, scene.Now)
		}
	}
	if files, err := os.ReadDir(o.Dir); err != nil || len(files) > 0 {
		t.Errorf("files are left: %v, %v", files, err)
	}
}

func TestWithoutTheFenceTheStaleHTTPWriteReplacesTheNewer(t *testing.T) {
	t.Parallel()
	o := options(t, filepath.Join(t.TempDir(), "store"))
	o.Unguarded = true
	r := runStaged(t, o)
	for _, s := range r.Steps() {
		want := drill.OK
		if s.Name == "stale-write/stale-write" {
			want = drill.Corrupted
			if !strings.Contains(s.Before, "by C") || !strings.Contains(s.After, "by B") || s.Lost != "C" {
				t.Errorf("before %q, after %q, lost %q; want C's, then B's", s.Before, s.After, s.Lost)
			}
		}
		if s.Result != want {
			t.Errorf("%s: %s, want %s", s.Name, s.Result, want)
		}
	}
}

// TestTheStagedDrillCatchesBrokenParts breaks one law, guard or meter at a
// time.
func TestTheStagedDrillCatchesBrokenParts(t *testing.T) {
	for way, want := range map[string]string{
		"lenient":  "stale-release/stale-release",
		"generous": "expiry/expiry",
		"hasty":    "expiry/expiry",
		"flat":     "stale-write/stale-write",
		blind:      "expiry/metric-transfers",
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "store")
			url := path
			if way != "flat" && way != blind {
				url = "broken://" + way + path
			}
			o := options(t, url)
			switch way {
			case "flat":
				o.Target = func(path string) string { return "leaky://flat" + path }
			case blind:
				made := o.Worker
				o.Worker = func() *exec.Cmd {
					cmd := made()
					cmd.Env = append(cmd.Env, worker+"="+blind)
					return cmd
				}
			}
			r := runStaged(t, o)
			if got := results(r)[want]; got != drill.Failed && got != drill.Corrupted {
				t.Errorf("%s: %q, want it caught", want, got)
			}
			if r.Good() || r.Unanswered() {
				t.Error("the drill as a whole has not failed")
			}
		})
	}
}
