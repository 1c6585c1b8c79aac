package chaos

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/croft-dev/croft/proof/history"
)

func TestMain(m *testing.M) {
	ServeIfAsked()
	os.Exit(m.Run())
}

// slice is as much of chaos as every test run has. The command has more: go run ./proof/chaos/cmd.
func slice(b Backend) Options {
	o := Options{Backend: b, For: 10 * time.Second, Clients: 8, Keys: 5, Seed: uint64(time.Now().UnixNano())}
	if testing.Short() {
		o.For = 3 * time.Second
	}
	return o
}

// TestNoLawIsBrokenUnderChaos on any backend: stopped, killed, cut off and confused as they are, clients lose no update and nobody's answer is wrong. It fails when a law is broken, when a client crashes,
// and when something hangs; never because the machine is slow.
func TestNoLawIsBrokenUnderChaos(t *testing.T) {
	for _, b := range Backends {
		t.Run(b.Name, func(t *testing.T) {
			t.Parallel()
			o := slice(b)
			r, err := Run(t.Context(), o)
			if errors.Is(err, ErrMissing) {
				t.Skip(err) // under CI=true it is another error
			}
			if err != nil {
				t.Fatalf("seed %d: %v", o.Seed, err)
			}
			for _, v := range r.Violations {
				t.Errorf("seed %d: %s", o.Seed, v)
			}
			if len(r.Violations) > 0 {
				t.Logf("drawn: %s", keepPage(t, r))
			}
			t.Logf("%d operations, %d grants, %d updates, %d refused, %d unknown, faults %v", r.Operations, r.Grants, r.Updates, r.Refusals, r.Unknown, r.Faults)
		})
	}
}

// keepPage saves the timeline from the folder that goes with the run.
func keepPage(t *testing.T, r *Report) string {
	t.Helper()
	f, err := os.CreateTemp("", "croft-chaos-*.html") //nolint:usetesting // it is to be looked at when the test is over
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(r.Page); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

// TestWithoutGuardsUpdatesAreLost is the control: the same clients, the same faults, no guards. It shows that the faults are hard enough for the other test to mean something, and that a loss is seen.
func TestWithoutGuardsUpdatesAreLost(t *testing.T) {
	t.Parallel()
	b, _ := Find("dir")
	o := slice(b)
	o.Bare, o.For, o.Folder = true, 5*time.Minute, t.TempDir() // it ends at the first loss
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatalf("seed %d: %v", o.Seed, err)
	}
	if len(r.Violations) > 0 {
		t.Errorf("seed %d: the store broke a law: %v", o.Seed, r.Violations)
	}
	if r.Lost == 0 {
		t.Fatalf("seed %d: none of %d updates was lost under %v", o.Seed, r.Updates, r.Faults)
	}
	ops, err := history.Load(o.Folder)
	if err != nil {
		t.Fatal(err)
	}
	kept := 0
	for _, v := range history.Check(ops, history.Terms{}) {
		if v.Law == history.Kept {
			kept++
		}
	}
	if kept < r.Lost {
		t.Errorf("%d updates were lost, and the checker finds %d", r.Lost, kept)
	}
	t.Logf("%d of %d updates lost, the first after %s", r.Lost, r.Updates, r.FirstLoss.Round(time.Millisecond))
}
