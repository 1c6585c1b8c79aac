package drill_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/croft-dev/croft/backend/dir"
	_ "github.com/croft-dev/croft/backend/file"
	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/drill"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// worker makes this binary a worker of the drill.
const worker = "DRILL_TEST_WORKER"

func TestMain(m *testing.M) {
	if os.Getenv(worker) != "" {
		if err := drill.Serve(context.Background(), os.Stdin, os.Stdout, testMeter()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// options are the options of a drill on the store at a URL. It has few
// contenders: storetest tests with many.
func options(t *testing.T, storeURL string) drill.Options {
	t.Helper()
	st, err := store.Open(t.Context(), storeURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	return drill.Options{
		Store: st, URL: storeURL, Dir: t.TempDir(), TTL: 1200 * time.Millisecond, Contenders: 4,
		Worker: func() *exec.Cmd {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), worker+"=1")
			return cmd
		},
	}
}

func run(t *testing.T, o drill.Options) *drill.Report {
	t.Helper()
	report, err := drill.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range report.Steps() {
		t.Logf("%-9s  %-28s %s: %s", s.Result, s.Name, s.Tried, s.Happened)
	}
	return report
}

// results maps steps to their results.
func results(r *drill.Report) map[string]drill.Result {
	all := map[string]drill.Result{}
	for _, s := range r.Steps() {
		all[s.Name] = s.Result
	}
	return all
}

func TestASoundStoreAndGuardPassAndNothingIsLeft(t *testing.T) {
	t.Parallel()
	o := options(t, filepath.Join(t.TempDir(), "store"))
	var mu sync.Mutex
	told := map[string]bool{}
	o.Progress = func(scene, _ string) {
		mu.Lock()
		defer mu.Unlock()
		told[scene] = true
	}
	r := run(t, o)
	if !r.Good() {
		t.Error("not everything was as it should be")
	}
	for _, scene := range []string{"", "pause", "cutoff", "crash", "rush"} {
		if !told[scene] {
			t.Errorf("nobody was told of what happens in %q", scene)
		}
	}
	if files, err := os.ReadDir(o.Dir); err != nil || len(files) > 0 {
		t.Errorf("files are left: %v, %v", files, err)
	}
	now, err := o.Store.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	keys := 0
	for rec, err := range o.Store.List(t.Context(), r.Keys) {
		if err != nil || rec.StateAt(now) != tenure.Free {
			t.Errorf("%s is left %s, %v", rec.Key, rec.StateAt(now), err)
		}
		keys++
	}
	if keys < len(r.Scenes) || len(r.Left) > 0 {
		t.Errorf("%d keys for %d scenes, left: %v", keys, len(r.Scenes), r.Left)
	}
	for _, scene := range r.Scenes {
		if len(scene.Terms) != 2 || scene.Terms[1].Token <= scene.Terms[0].Token || scene.Terms[1].Acquired.Before(scene.Terms[0].Finished) {
			t.Errorf("%s: %+v; want two owners, one after the other", scene.Name, scene.Terms)
		}
	}
	checkEvents(t, r)
}

// checkEvents checks that a sound drill has recorded its events in their order.
func checkEvents(t *testing.T, r *drill.Report) {
	t.Helper()
	var pause []string
	renewed := false
	for _, scene := range r.Scenes {
		if !slices.IsSortedFunc(scene.Events, func(a, b drill.Event) int { return a.At.Compare(b.At) }) {
			t.Errorf("%s: not in the order of time: %+v", scene.Name, scene.Events)
		}
		for _, e := range scene.Events {
			for _, term := range scene.Terms {
				if e.Kind == drill.Wrote && e.Owner == term.Owner && term.Ended == tenure.EndReleased && e.At.After(term.Finished) {
					t.Errorf("%s: %s wrote at %s, after its release at %s", scene.Name, e.Owner, e.At, term.Finished)
				}
			}
			switch {
			case e.Kind == drill.Renewed:
				renewed = renewed || scene.Name == "cutoff" && e.Owner == "A"
			case scene.Name == "pause":
				pause = append(pause, e.Owner+" "+string(e.Kind))
			}
		}
	}
	if !renewed {
		t.Error("nothing was recorded of A's renewal in the scene cutoff")
	}
	want := []string{
		"A wrote", "A left", "B asked", "B wrote", "A returned", "A bounced", "A refused", "A refused", "A refused",
		"A refused", "A bounced", "B wrote",
	}
	if !slices.Equal(pause, want) {
		t.Errorf("the events of the scene pause are %q, want %q", pause, want)
	}
}

func TestWithoutTheFenceTheSleepersResultReplacesTheNewer(t *testing.T) {
	t.Parallel()
	o := options(t, filepath.Join(t.TempDir(), "store"))
	o.Unguarded, o.Keep = true, true
	r := run(t, o)
	for name, result := range results(r) {
		want := drill.OK
		switch name {
		case "pause/half-finished-write", "pause/stale-write", "cutoff/stale-write", "operator/stale-write", "operator/late-write":
			want = drill.Corrupted
		}
		if result != want {
			t.Errorf("%s: %s, want %s", name, result, want)
		}
	}
	for _, s := range r.Steps() {
		if s.Name == "pause/half-finished-write" && (!strings.Contains(s.Before, "by B") || !strings.Contains(s.After, "by A")) {
			t.Errorf("%s: before %q, after %q; want B's, then A's", s.Name, s.Before, s.After)
		}
	}
	through := 0
	for _, e := range r.Scenes[0].Events {
		if e.Kind == drill.Overwrote && e.Owner == "A" {
			through++
		}
	}
	if through != 2 {
		t.Errorf("%d of A's stale writes were recorded in the scene pause, want 2", through)
	}
	if kept, err := os.ReadFile(filepath.Join(r.Dir, "pause.txt")); err != nil || len(kept) == 0 {
		t.Errorf("kept: %q, %v", kept, err)
	}
}

// TestTheDrillCatchesBrokenParts breaks one law at a time. The steps that test
// this law must fail; the others do not matter.
func TestTheDrillCatchesBrokenParts(t *testing.T) {
	for way, want := range map[string][]string{
		"lenient":  {"pause/stale-renew", "pause/stale-release", "operator/stale-renew", "cutoff/stale-renew"},
		"generous": {"pause/expiry", "crash/expiry", "cutoff/expiry", "messages/held", "rush/rush"},
		"hasty":    {"pause/expiry", "crash/expiry", "cutoff/expiry"},
		"twice":    {"messages/lost-reply"},
		"open":     {"pause/half-finished-write", "pause/stale-write", "cutoff/stale-write", "operator/stale-write", "operator/late-write"},
		"flat":     {"cutoff/stale-write", "operator/stale-write"},
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "store")
			url := "broken://" + way + path
			if guards := []string{"open", "flat"}; slices.Contains(guards, way) {
				url = path
			}
			o := options(t, url)
			if url == path {
				o.Target = func(path string) string { return "leaky://" + way + path }
			}
			r := run(t, o)
			got := results(r)
			for _, step := range want {
				if got[step] != drill.Failed && got[step] != drill.Corrupted {
					t.Errorf("%s: %q, want it caught", step, got[step])
				}
			}
			if r.Good() || r.Unanswered() {
				t.Error("the drill as a whole has not failed")
			}
			t.Logf("caught by %q", strings.Join(want, ", "))
		})
	}
}

func TestAStoreThatCannotBeDrilledIsSaidSo(t *testing.T) {
	t.Parallel()
	t.Run("it does not answer", func(t *testing.T) {
		o := options(t, filepath.Join(t.TempDir(), "store"))
		o.Store = deaf{o.Store}
		if _, err := drill.Run(t.Context(), o); !errors.Is(err, store.ErrUnknown) {
			t.Errorf("%v, want it unknown", err)
		}
	})
	t.Run("other processes do not see it", func(t *testing.T) {
		o := options(t, "mem://alone")
		o.Store = mem.New(nil)
		if _, err := drill.Run(t.Context(), o); !errors.Is(err, fence.ErrInvalid) || !strings.Contains(err.Error(), "processes share") {
			t.Errorf("%v, want it invalid", err)
		}
	})
	t.Run("no folder for the files", func(t *testing.T) {
		o := options(t, filepath.Join(t.TempDir(), "store"))
		o.Dir = filepath.Join(o.Dir, "missing")
		if _, err := drill.Run(t.Context(), o); !errors.Is(err, fence.ErrInvalid) || !strings.Contains(err.Error(), "--dir") {
			t.Errorf("%v, want it invalid", err)
		}
	})
	t.Run("no worker", func(t *testing.T) {
		o := options(t, filepath.Join(t.TempDir(), "store"))
		o.Worker = func() *exec.Cmd { return exec.Command("false") }
		if _, err := drill.Run(t.Context(), o); !errors.Is(err, store.ErrUnknown) {
			t.Errorf("%v, want it unknown", err)
		}
	})
}

// TestAnInterruptedDrillLeavesNothingBehind: no process, stopped or not, no
// file and no held key is left.
func TestAnInterruptedDrillLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	o := options(t, filepath.Join(t.TempDir(), "store"))
	o.TTL = 20 * time.Second // uninterrupted, it would take most of a minute
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	o.Progress = func(scene, text string) {
		if scene == "pause" && strings.Contains(text, "SIGSTOP") {
			interrupt()
		}
	}
	var mu sync.Mutex
	var started []*exec.Cmd
	made := o.Worker
	o.Worker = func() *exec.Cmd {
		cmd := made()
		mu.Lock()
		defer mu.Unlock()
		started = append(started, cmd)
		return cmd
	}
	if _, err := drill.Run(ctx, o); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v, want it cancelled", err)
	}
	for _, cmd := range started {
		if cmd.ProcessState == nil {
			t.Errorf("process %d has not been seen to end", cmd.Process.Pid)
		}
	}
	if files, err := os.ReadDir(o.Dir); err != nil || len(files) > 0 {
		t.Errorf("files are left: %v, %v", files, err)
	}
	now, err := o.Store.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for rec, err := range o.Store.List(t.Context(), "") {
		if err != nil || rec.StateAt(now) != tenure.Free {
			t.Errorf("%s is left %s, %v", rec.Key, rec.StateAt(now), err)
		}
	}
}
