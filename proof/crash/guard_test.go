//go:build linux || darwin

package crash

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/croft-dev/croft/backend/file"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/fsys"
	"github.com/croft-dev/croft/internal/inject"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/tenure"
)

// admission is a writer's note: it asks to be admitted, or it was.
type admission struct {
	token fence.Token
	raise bool // it only raises the mark
	told  bool
}

func (a admission) String() string {
	return fmt.Sprintf("%s: %s token %d", map[bool]string{false: "asked", true: "told"}[a.told], map[bool]string{false: "write", true: "raise"}[a.raise], a.token)
}

// stampOf returns the stamp of the owner with a token. Each owner has its own
// grant.
func stampOf(token fence.Token) fence.Stamp {
	return fence.Stamp{Key: "job/a", Token: token, Grant: tenure.Secret(fmt.Sprintf("%032x", int64(token))).Grant()}
}

// contentOf is the content that the owner with a token writes: four sectors,
// all different from those of other owners.
func contentOf(token fence.Token) string {
	return strings.Repeat(fmt.Sprintf("token %9d\n", token), 120)
}

// guardRun records guarded files.
type guardRun struct {
	testing.TB
	rec *Recorder
}

func newGuardRun(tb testing.TB) *guardRun { return &guardRun{tb, NewRecorder(testenv.Memory(tb))} }

// admit writes, or raises the fence, like a process of its own.
func (r *guardRun) admit(fsy fsys.FS, token fence.Token, raise bool) error {
	r.Helper()
	f, err := inject.File(filepath.Join(r.rec.Top(), "artifact"), fsy)
	if err != nil {
		return err
	}
	r.rec.Note(admission{token, raise, false})
	if raise {
		_, err = f.Raise(context.Background(), stampOf(token))
	} else {
		_, err = f.Write(context.Background(), stampOf(token), strings.NewReader(contentOf(token)))
	}
	if err == nil {
		r.rec.Note(admission{token, raise, true})
	}
	return err
}

// guardLawful compares a guarded file with its writers' requests and answers.
func guardLawful(top string, notes []any) error {
	var highest, written fence.Token // of confirmed notes
	seen := map[string]fence.Token{}
	for _, n := range notes {
		a := n.(admission)
		if !a.raise {
			seen[contentOf(a.token)] = a.token
		}
		if a.told {
			highest = max(highest, a.token)
			if !a.raise {
				written = a.token
			}
		}
	}
	path := filepath.Join(top, "artifact")
	content, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	there, whole := seen[string(content)]
	switch {
	case err == nil && !whole:
		return fmt.Errorf("the artifact is not whole: %d bytes, %.40q", len(content), content)
	case there < written:
		return fmt.Errorf("the artifact is of token %d, and the write of %d was told (law 6)", there, written)
	}
	f, err := file.Open(path, nil)
	if err != nil {
		return err
	}
	mark, err := f.Mark(context.Background())
	if err != nil {
		return fmt.Errorf("the mark cannot be read: %w", err)
	}
	if mark.Token < highest || mark.Token < there {
		return fmt.Errorf("the mark is %d; token %d was admitted, and the artifact is of %d (law 3)", mark.Token, highest, there)
	}
	if mark.Token > 1 {
		if _, err := f.Write(context.Background(), stampOf(mark.Token-1), strings.NewReader("stale")); !errors.Is(err, fence.ErrStale) {
			return fmt.Errorf("a write below the mark: %w (law 3)", err)
		}
	}
	if now, err := os.ReadFile(path); err == nil && string(now) != string(content) {
		return errors.New("a refused write has changed the artifact (law 7)")
	}
	if _, err := f.Write(context.Background(), stampOf(mark.Token+1), strings.NewReader(contentOf(mark.Token+1))); err != nil {
		return fmt.Errorf("the next write: %w", err)
	}
	if now, err := os.ReadFile(path); err != nil || string(now) != contentOf(mark.Token+1) {
		return fmt.Errorf("the next write did not arrive: %w", err)
	}
	return nil
}

// guardLife writes and raises several times. Each time is a process of its own
// on wrap(recorder).
func guardLife(r *guardRun, wrap func(fsys.FS) fsys.FS) {
	r.Helper()
	for token, raise := range []bool{1: false, 2: true, 3: false, 4: false, 5: true} {
		if token == 0 {
			continue
		}
		if err := r.admit(wrap(r.rec), fence.Token(token), raise); err != nil {
			r.Fatal(err)
		}
	}
}

func plain(fsy fsys.FS) fsys.FS { return fsy }

// A guarded file must survive a power cut after any step.
func TestAGuardedFileSurvivesEveryPowerCut(t *testing.T) {
	t.Parallel()
	r := newGuardRun(t)
	guardLife(r, plain)
	report := r.rec.Search(t, Search{}, guardLawful)
	t.Log(report)
	if report.Wrong != "" {
		t.Error(report.Wrong)
	}
}

// A writer is killed before each of its steps, another goes on, and then the
// power is cut.
func TestAGuardedFileSurvivesAKilledWriterAndAPowerCut(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]fence.Token{"the first": 0, "a later": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for at := 1; ; at++ {
				r := newGuardRun(t)
				for token := range before {
					if err := r.admit(r.rec, token+1, false); err != nil {
						t.Fatal(err)
					}
				}
				n := 0 // needs no lock: a guard has no background work
				err := r.admit(&fsys.Faulty{FS: r.rec, Before: func(s fsys.Step) error {
					if n++; n >= at && s.Op != "close" { // the kernel closes a dead process's files
						return fsys.ErrCrashed
					}
					return nil
				}}, before+1, false)
				if n < at {
					break
				}
				if err != nil && !errors.Is(err, fsys.ErrCrashed) {
					t.Fatal(err)
				}
				from := r.rec.Len()
				if err := r.admit(r.rec, before+2, at%2 == 0); err != nil {
					t.Fatal(err)
				}
				if report := r.rec.Search(t, Search{From: from, Draws: 2, Recent: 4, OneIn: oneIn(20)}, guardLawful); report.Wrong != "" {
					t.Fatalf("killed before step %d; %s", at, report.Wrong)
				}
			}
		})
	}
}
