package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
)

func sim1(args ...string) (code int, out, errOut string) {
	var o, e bytes.Buffer
	code = run(context.Background(), args, &o, &e)
	return code, o.String(), e.String()
}

// The status is 2, and the message lists the valid values.
func TestABadCommandLineIsExplained(t *testing.T) {
	for _, c := range []struct{ args, says string }{
		{"--profile nowhere", "network"},
		{"--seed 3", "--profile"},
		{"--mutant nobody --seed 1", "no-anchor"},
		{"--mutant no-anchor", "--seed"},
		{"--seeds 0", "1 or more"},
		{"--profile redis left", "left"},
		{"--nonsense", "sim -h"},
		{"--case {", "sim -h"},
	} {
		if code, _, errOut := sim1(strings.Fields(c.args)...); code != 2 || !strings.Contains(errOut, c.says) {
			t.Errorf("sim %s: status %d, %q; want 2 and %q", c.args, code, errOut, c.says)
		}
	}
	if code, _, errOut := sim1("-h"); code != 0 || !strings.Contains(errOut, "--mutants") {
		t.Errorf("sim -h: status %d, %q", code, errOut)
	}
}

// A single seed prints its timeline, or JSON.
func TestASeedIsTold(t *testing.T) {
	code, out, _ := sim1("--profile", "redis", "--seed", "5", "--ops", "200")
	if code != 0 || !strings.Contains(out, "acquire sim/k") || !strings.Contains(out, "faults stop") {
		t.Errorf("status %d:\n%.500s", code, out)
	}
	code, out, _ = sim1("--profile", "redis", "--seed", "5", "--ops", "200", "--json")
	var r struct{ Ops int }
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 || r.Ops < 200 {
		t.Errorf("status %d, %v: %.300s", code, err, out)
	}
}

// A broken seed is shrunk. The printed case must break the same law again.
func TestABrokenSeedCanBeRunAgain(t *testing.T) {
	code, out, _ := sim1("--mutant", "no-anchor", "--seed", "1")
	_, again, found := strings.Cut(out, "--case '")
	if code != 1 || !found || !strings.Contains(out, "law 2: tokens rise is broken") {
		t.Fatalf("status %d:\n%.500s", code, out)
	}
	again, _, _ = strings.Cut(again, "'")
	if code, out, _ := sim1("--case", again); code != 1 || !strings.Contains(out, "law 2: tokens rise") {
		t.Errorf("again: status %d:\n%.500s", code, out)
	}
}

// Many seeds give a line, or a JSON object, for each profile.
func TestManySeedsAreSummed(t *testing.T) {
	code, out, _ := sim1("--profile", "redis,clocks", "--seeds", "6", "--ops", "200", "--coverage")
	if code != 0 || !strings.Contains(out, "6 seeds") || !strings.Contains(out, "held: held") {
		t.Errorf("status %d:\n%.800s", code, out)
	}
	code, out, _ = sim1("--profile", "redis,clocks", "--seeds", "6", "--ops", "200", "--json")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	var soak struct {
		Profile  string
		Seeds    int
		Coverage map[string]map[string]int
	}
	if err := json.Unmarshal([]byte(lines[0]), &soak); err != nil || code != 0 || len(lines) != 2 || soak.Seeds != 3 || soak.Coverage["transition"]["acquire first"] == 0 {
		t.Errorf("status %d, %v: %.300s", code, err, out)
	}
}

// One of these mutants is found by a test, the others by a law. `make mutants`
// runs them all.
func TestMutantsOfTheEngineAreFound(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the simulator anew for each of them")
	}
	for _, name := range []string{"abandons-unknown", "refused-from-belief", "no-yielding"} {
		if code, out, errOut := sim1("--mutants", "--mutant", name); code != 0 || !strings.Contains(out, "1 mutants, 0 not found") {
			t.Errorf("%s: status %d: %s%s", name, code, out, errOut)
		}
	}
}

// The command builds itself with the patch of the mutant. Most seeds, but not
// all, break a law with it.
func TestAMutantOfTheEngineIsTold(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the simulator")
	}
	var code int
	var out, errOut string
	for seed := 1; seed <= 10 && code != 1; seed++ {
		code, out, errOut = sim1("--mutant", "another-secret", "--seed", strconv.Itoa(seed))
	}
	if code != 1 || !strings.Contains(out, "law 6: ") || !strings.Contains(out, `"mutant":"another-secret"`) {
		t.Errorf("status %d: %.500s%s", code, out, errOut)
	}
}
