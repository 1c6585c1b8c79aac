package chaos

import (
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/croft-dev/croft/proof/history"
)

func TestMain(m *testing.M) {
	ServeIfAsked()
	os.Exit(m.Run())
}

// slice returns the options of a short run, for every test run. For longer runs
// use the command: go run ./proof/chaos/cmd.
func slice(b Backend) Options {
	o := Options{Backend: b, For: 5 * b.TTL, Clients: 8, Operators: 1, Keys: 3, Seed: uint64(time.Now().UnixNano())}
	if testing.Short() {
		o.For = 3 * b.TTL
	}
	return o
}

// slots limits how many runs go on at a time. A run mostly waits, so there are
// more slots than processors. With many more, its processes starve and get
// nothing done.
var slots = make(chan struct{}, 4)

// onEach runs chaos on each backend, several at a time. It returns when all
// runs are over.
func onEach(t *testing.T, backends []Backend, set func(o *Options), judge func(t *testing.T, o Options, r *Report)) {
	t.Helper()
	var all sync.WaitGroup
	defer all.Wait()
	for _, b := range backends {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			t.Run(b.Name, func(t *testing.T) {
				o := slice(b)
				o.Folder = t.TempDir()
				set(&o)
				r, err := Run(t.Context(), o)
				if errors.Is(err, ErrMissing) {
					t.Skip(err) // with CI=true it is another error
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
				judge(t, o, r)
			})
		})
	}
}

// Clients must lose no update and get no wrong answer, on any backend. The test
// fails if a law is broken, a client crashes or something hangs, but never
// because the machine is slow.
func TestNoLawIsBrokenUnderChaos(t *testing.T) {
	t.Parallel()
	onEach(t, Backends, func(*Options) {}, func(t *testing.T, _ Options, r *Report) {
		t.Logf("%d operations, %d grants, %d updates, %d refused, %d unknown, %d by hand, faults %v", r.Operations, r.Grants, r.Updates, r.Refusals, r.Unknown, r.ByHand, r.Faults)
	})
}

// TestWithoutGuardsUpdatesAreLost is the control: the same clients and faults,
// but no guards. It shows that the faults are hard enough for the other test to
// mean something, and that a loss is seen. Each run ends at its first loss. The
// test runs on files, on a server and on object storage. `make proof` runs it
// on every backend.
func TestWithoutGuardsUpdatesAreLost(t *testing.T) {
	t.Parallel()
	// A run takes seconds, on a starved machine minutes. This limit finds
	// hangs.
	bare := func(o *Options) { o.Bare, o.For = true, 6*time.Minute }
	var backends []Backend
	for _, name := range []string{"sqlite", "redis", "s3"} {
		b, ok := Find(name)
		if !ok {
			t.Fatalf("no backend %s", name)
		}
		backends = append(backends, b)
	}
	onEach(t, backends, bare, func(t *testing.T, o Options, r *Report) {
		if r.Lost == 0 {
			t.Fatalf("seed %d: none of %d updates was lost under %v", o.Seed, r.Updates, r.Faults)
		}
		ops, err := history.Load(o.Folder)
		if err != nil {
			t.Fatal(err)
		}
		kept := 0
		for _, v := range history.Check(ops, history.Scope{}) {
			if v.Law == history.Kept {
				kept++
			}
		}
		if kept < r.Lost {
			t.Errorf("%d updates were lost, and the checker finds %d", r.Lost, kept)
		}
		t.Logf("%d of %d updates lost, the first after %s", r.Lost, r.Updates, r.FirstLoss.Round(time.Millisecond))
	})
}

// keepPage saves the timeline outside the run's folder, which is removed.
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
