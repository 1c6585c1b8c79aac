package observe

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/croft-dev/croft/internal/test/testenv"
)

// TestTheAlertRulesFireWhenTheyShould: Prometheus itself judges whether each
// rule fires when it should, and only then.
func TestTheAlertRulesFireWhenTheyShould(t *testing.T) {
	t.Parallel()
	promtool := testenv.Program(t, "promtool", "prometheus")
	run := func(args ...string) (string, error) {
		out, err := exec.Command(promtool, args...).CombinedOutput()
		return string(out), err
	}
	for _, args := range [][]string{{"check", "rules", "alerts.yml"}, {"test", "rules", "alerts_test.yml"}} {
		if out, err := run(args...); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}

	// The tests of the rules must notice each of these broken rules.
	rules, err := os.ReadFile("alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	tests, err := os.ReadFile("alerts_test.yml")
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]struct{ from, to, test string }{
		"single events fire":          {"for: 15m", "for: 1m", "single events of not-owned do not, not even where little happens"},
		"not-owned never fires":       {"> 0.05", "> 0.5", "a sustained ratio of not-owned fires"},
		"waits never fire":            {"> 30\n", "> 300\n", "long waits fire, when they go on"},
		"takeovers are losses":        {`loss!~"closed|taken_over"`, `loss!=""`, "leases that are lost fire, takeovers and shutdowns do not"},
		"a stale write is quiet":      {`stale|repeated|wrong_key`, `repeated|wrong_key`, "refused writes fire when they go on, a single one does not"},
		"a taken resource fires":      {`resources{state="closed"}`, `resources{state="taken"}`, "a resource that stays closed fires, one that settles does not"},
		"any operation counts":        {`operation=~"renew|release|report", outcome`, `outcome`, "what is not a renewal, release or report is no part of the ratio"},
		"hiccups are pauses":          {"[10m])) > 0.05\n        for: 5m", "[10m])) > 0.001\n        for: 5m", "a process that stands still fires, single hiccups do not"},
		"a slow queue is stuck":       {`unless on (queue) sum by (queue) (increase(croft_work_wait_seconds_count[10m])) > 0`, `and on (queue) vector(1) or max by (queue) (croft_work_ready_age_seconds) > 300`, "a queue that nobody claims from fires, one that is worked on does not"},
		"a long queue fires":          {`> 1.5 * max by (queue)`, `> 0 * max by (queue)`, "a queue that grows fires, a long one that shrinks does not"},
		"a busy queue loses workers":  {`> 0.05 * sum by (queue)`, `> 0 * sum by (queue)`, "workers that die fire when it is a share of the claims"},
		"operators are stale workers": {`verb=~"heartbeat|report|checkpoint|complete|fail|release", outcome="stale"`, `outcome="stale"`, "a share of stale requests of workers fires, stale acts of operators do not"},
		"a slow dispatcher is dead":   {`unless on (destination) sum`, `unless on (destination) 0 * sum`, "effects that nobody delivers fire, those of a slow dispatcher fire when they grow"},
		"a first one is quiet": {
			`or (croft_fence_raises_total{outcome="collision"}`, `or (croft_fence_raises_total{outcome="none"}`,
			"a collision fires also when it is the first that is heard of a guard, and not for ever",
		},
	} {
		broken := strings.Replace(string(rules), change.from, change.to, 1)
		if broken == string(rules) {
			t.Fatalf("%s: alerts.yml has no %q", name, change.from)
		}
		dir := t.TempDir()
		for file, text := range map[string]string{"alerts.yml": broken, "alerts_test.yml": onlyTest(t, string(tests), change.test)} {
			if err := os.WriteFile(dir+"/"+file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		out, err := run("test", "rules", dir+"/alerts_test.yml")
		if err == nil || !strings.Contains(out, "FAILED:\n    name: "+change.test) {
			t.Errorf("%s: the test of the rules has not noticed: %v\n%s", name, err, out)
		}
	}
}

// onlyTest returns a file with only one of its tests. All of them take long.
func onlyTest(t *testing.T, tests, name string) string {
	t.Helper()
	const begin = "\n  - name: "
	head, rest, _ := strings.Cut(tests, begin)
	for one := range strings.SplitSeq(rest, begin) {
		if strings.HasPrefix(one, name+"\n") {
			return head + begin + one
		}
	}
	t.Fatalf("alerts_test.yml has no %q", name)
	return ""
}

var metricName = regexp.MustCompile(`croft_[a-z_]+`)

// metricsIn lists the metrics in a text, without the endings of histograms.
func metricsIn(text string) []string {
	var names []string
	for _, name := range metricName.FindAllString(text, -1) {
		for _, end := range []string{"_bucket", "_count", "_sum"} {
			name = strings.TrimSuffix(name, end)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// dashboard is the part of the dashboard that is checked.
type dashboard struct {
	Panels []struct {
		Title   string
		Type    string
		Targets []struct{ Expr, LegendFormat string }
	}
}

func readDashboard(t *testing.T) (board dashboard) {
	t.Helper()
	text, err := os.ReadFile("dashboard.json")
	if err == nil {
		err = json.Unmarshal(text, &board)
	}
	if err != nil {
		t.Fatal(err)
	}
	return board
}

var legendName = regexp.MustCompile(`\{\{(\w+)\}\}`)

// legendNames returns the labels that a legend shows.
func legendNames(format string) (names []string) {
	for _, m := range legendName.FindAllStringSubmatch(format, -1) {
		names = append(names, m[1])
	}
	return names
}

// TestAlertsAndDashboardUseMetricsThatAreThere: alerts and dashboard use only
// metrics that exist, and the dashboard shows every one.
func TestAlertsAndDashboardUseMetricsThatAreThere(t *testing.T) {
	known := documented(t)
	for _, file := range []string{"alerts.yml", "alerts_test.yml", "dashboard.json"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range metricsIn(string(text)) {
			if known[name] == "" {
				t.Errorf("%s uses %s, which is not there", file, name)
			}
		}
	}
	var shown []string
	for _, p := range readDashboard(t).Panels {
		if p.Type != "row" && (p.Title == "" || len(p.Targets) == 0) {
			t.Errorf("panel %q shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			shown = append(shown, metricsIn(target.Expr)...)
		}
	}
	for name := range known {
		if !slices.Contains(shown, name) {
			t.Errorf("no panel shows %s", name)
		}
	}
}

// TestEveryAlertHasAPageInTheRunbook: the link of each alert leads to a section
// of the runbook.
func TestEveryAlertHasAPageInTheRunbook(t *testing.T) {
	rules, err := os.ReadFile("alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	runbook, err := os.ReadFile("../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	alerts := regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(string(rules), -1)
	if len(alerts) < 5 {
		t.Fatalf("%d alerts", len(alerts))
	}
	for _, a := range alerts {
		if !strings.Contains(string(runbook), "\n### "+a[1]+"\n") {
			t.Errorf("docs/runbook.md has no section %s", a[1])
		}
		if !strings.Contains(string(rules), "docs/runbook.md#"+strings.ToLower(a[1])+"\n") {
			t.Errorf("%s does not link to its section", a[1])
		}
	}
}
