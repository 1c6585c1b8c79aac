//go:build linux

package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// TestAFrozenWorkersWriteIsRefusedByTheMark: a worker stands still with its
// item. Somebody takes the item from it. From then on the guards that the item
// names refuse its stamp by their mark alone: nobody else has claimed the item,
// nobody has written, and nobody can ask the ledger.
func TestAFrozenWorkersWriteIsRefusedByTheMark(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"sqlite", "postgres"} {
		for name, act := range map[string]func(w *frozenWorker){
			"reassign": func(w *frozenWorker) { w.byHand("reassign", "--to", "bob@two") },
			"cancel":   func(w *frozenWorker) { w.byHand("cancel") },
			"takeover": func(w *frozenWorker) { w.byHand("takeover") },
			"replay": func(w *frozenWorker) {
				w.cancelUnfenced()
				w.byHand("replay")
			},
			"expiry": func(w *frozenWorker) {
				w.until("the item lapses", func() bool { return strings.Contains(w.must(0, "work", "ls", "q"), "lapsed") })
				said := w.must(0, "work", "reconcile", "--raise", w.out)
				if !strings.Contains(said, "1 requeued") || !strings.Contains(said, "0 unfenced") {
					w.t.Errorf("the reconciler says %s", said)
				}
			},
		} {
			t.Run(engine+"/"+name, func(t *testing.T) {
				t.Parallel()
				s := newStation(t)
				for variable, value := range engines[engine](t) {
					s.env = append(s.env, variable+"="+value)
				}
				w := s.frozenWorker()
				w.admits()
				act(w)
				w.refuses()
			})
		}
	}
}

// frozenWorker is a croft work run whose whole tree is stopped, with an item
// that names a file and a row of the ledger's own database.
type frozenWorker struct {
	*station
	out    string // the folder of the file
	id     string
	stamp  fence.Stamp
	guards []string
}

func (s *station) frozenWorker() *frozenWorker {
	s.t.Helper()
	w := &frozenWorker{station: s, out: filepath.Join(s.dir, "out")}
	if err := os.Mkdir(w.out, 0o700); err != nil {
		s.t.Fatal(err)
	}
	store := w.store()
	w.id = strings.TrimSpace(s.must(0, "work", "add", "q", "payload", "--guard", "out/{id}", "--guard", store+"#out/{id}"))
	w.guards = []string{filepath.Join(w.out, w.id), store + "#out/" + w.id}
	job := s.script("job", `echo "$CROFT_STAMP" > stamp.new && mv stamp.new stamp && exec sleep 1000`)
	worker, out := s.croft("work", "run", "q", "--ttl", ttl, "--no-reconcile", "--raise", w.out, "--", job)
	text := s.read("stamp")
	stopAll(s.t, descendants(s.t, worker.Process.Pid))
	var err error
	if w.stamp, err = fence.ParseStamp(text); err != nil {
		s.t.Fatalf("%v\n%s", err, out)
	}
	return w
}

// store is the URL of the ledger.
func (w *frozenWorker) store() string {
	w.t.Helper()
	for _, variable := range w.env {
		if url, found := strings.CutPrefix(variable, cli.EnvStore+"="); found {
			return url
		}
	}
	w.t.Fatal("the engine has no store")
	return ""
}

// byHand takes the item from the worker, and checks what croft says about the
// fence.
func (w *frozenWorker) byHand(act string, args ...string) {
	w.t.Helper()
	said := w.must(0, append([]string{"work", act, w.id, "--note", "stuck", "--raise", w.out}, args...)...)
	for _, target := range w.guards {
		if !strings.Contains(said, "croft: fence raised: "+target+"\n") {
			w.t.Errorf("%s does not say that the fence is up at %s:\n%s", act, target, said)
		}
	}
}

// cancelUnfenced cancels the item in the ledger and raises no fence.
func (w *frozenWorker) cancelUnfenced() {
	w.t.Helper()
	l, err := work.Open(w.t.Context(), w.store())
	if err != nil {
		w.t.Fatal(err)
	}
	defer l.Close()
	if err := l.Apply(w.t.Context(), []work.Request{{
		Verb: work.Cancel, ID: work.ID(w.id), Secret: tenure.NewSecret(), Actor: "olga", Note: "stuck",
	}})[0].Err; err != nil {
		w.t.Fatal(err)
	}
}

// answers returns what the guards answer to the worker's stamp: the row to a
// raise, the file to croft write without a ledger to ask.
func (w *frozenWorker) answers() (file int, row error) {
	w.t.Helper()
	g, err := guard.Open(w.t.Context(), w.guards[1])
	if err != nil {
		w.t.Fatal(err)
	}
	defer g.Close()
	_, row = g.Raise(w.t.Context(), w.stamp)
	file, _ = w.run("write", w.guards[0], "--from", w.file("content", "late"), "--stamp", w.stamp.String(),
		"--store", "redis://127.0.0.1:1", "--when-unsure", "admit")
	return file, row
}

// admits checks that the guards know the worker as their newest owner.
func (w *frozenWorker) admits() {
	w.t.Helper()
	if file, row := w.answers(); row != nil || file != 0 {
		w.t.Fatalf("before the act the row answers %v, and croft write %d", row, file)
	}
	if err := os.Remove(w.guards[0]); err != nil {
		w.t.Fatal(err)
	}
}

// refuses checks that the guards shut the worker out.
func (w *frozenWorker) refuses() {
	w.t.Helper()
	if file, row := w.answers(); !errors.Is(row, fence.ErrStale) || file != cli.ExitRefused {
		w.t.Errorf("after the act the row answers %v, and croft write %d", row, file)
	}
	if _, err := os.Stat(w.guards[0]); !errors.Is(err, os.ErrNotExist) {
		w.t.Errorf("there is a file: %v", err)
	}
}
