//go:build linux || darwin

package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/fsys"
	"github.com/croft-dev/croft/internal/test/testenv"
)

// guardScene is a call that is disturbed at each of its steps, and the state
// before it. The call's token is 20.
type guardScene struct {
	name    string
	content string // "": there is no file
	token   fence.Token
	call    func(ctx context.Context, f *File) error
	writes  bool // the call replaces the content with guardNew
}

const guardNew = "new content\n"

func guardWriteNew(ctx context.Context, f *File) error {
	_, err := f.Write(ctx, guardStamp(20), strings.NewReader(guardNew))
	return err
}

func guardRaiseNew(ctx context.Context, f *File) error {
	_, err := f.Raise(ctx, guardStamp(20))
	return err
}

var guardScenes = []guardScene{
	{"the first write of a new file", "", 0, guardWriteNew, true},
	{"the first write of an old file", "old content\n", 0, guardWriteNew, true},
	{"a later write", "old content\n", 10, guardWriteNew, true},
	{"a write after a raise", "", 10, guardWriteNew, true},
	{"a first raise", "old content\n", 0, guardRaiseNew, false},
	{"a later raise", "old content\n", 10, guardRaiseNew, false},
}

// set makes a directory for the scene, without syncing.
func (g guardScene) set(t testing.TB) string {
	t.Helper()
	path := filepath.Join(testenv.Memory(t), "artifact")
	if g.content != "" {
		if err := os.WriteFile(path, []byte(g.content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if g.token != 0 {
		a, b := slotSample(3), slotSample(4)
		a.mark, b.mark = guardStamp(g.token-1).Mark(), guardStamp(g.token).Mark()
		if err := os.WriteFile(path+guardSuffix, slotImageOf(a, b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// judge opens a fresh guard after a disturbed call. The file must be whole, and
// the mark at least as high as any admitted token. It returns a description of
// the first failure, or "".
func (g guardScene) judge(path string, callErr error) (wrong string) {
	ctx := context.Background()
	f, err := Open(path, &Options{LockWait: -1}) // finds an abandoned lock at once
	if err != nil {
		return err.Error()
	}
	f.fs = guardUnsynced{}
	mark, err := f.Mark(ctx)
	if err != nil {
		return "the mark cannot be read: " + err.Error()
	}
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err.Error()
	}
	content := string(data)
	fresh := g.writes && content == guardNew
	switch {
	case content != g.content && !fresh:
		return fmt.Sprintf("the content is %q, neither the old nor the new", content)
	case mark.Token != g.token && mark.Token != 20:
		return fmt.Sprintf("the mark is %+v, neither the old nor the new", mark)
	case fresh && mark.Token != 20:
		return fmt.Sprintf("the content is new and the mark is old, %+v", mark)
	case callErr == nil && mark.Token != 20:
		return fmt.Sprintf("the call was answered well and the mark is %+v", mark)
	case callErr == nil && g.writes && !fresh:
		return fmt.Sprintf("the call was answered well and the content is %q", content)
	}
	if mark.Token == 20 {
		if _, err := f.Write(ctx, guardStamp(19), strings.NewReader("late")); !errors.Is(err, fence.ErrStale) {
			return fmt.Sprintf("a stale write is answered %v", err)
		}
		if now, _ := os.ReadFile(path); string(now) != content {
			return fmt.Sprintf("a stale write made the content %q", now)
		}
	}
	if _, err := f.Write(ctx, guardStamp(21), strings.NewReader("next")); err != nil {
		return fmt.Sprintf("the next owner's write is answered %v", err)
	}
	if now, _ := os.ReadFile(path); string(now) != "next" {
		return fmt.Sprintf("the next owner's write made the content %q", now)
	}
	return ""
}

// guardUnsynced is a file system that does not wait for the disk. Without a
// power cut that makes no difference.
type guardUnsynced struct{ fsys.OS }

func (guardUnsynced) SyncDir(fsys.Path) error { return nil }

func (guardUnsynced) Open(path fsys.Path, flag int, perm fs.FileMode) (fsys.File, error) {
	file, err := fsys.OS{}.Open(path, flag, perm)
	if err != nil {
		return nil, err
	}
	return guardUnsyncedFile{file}, nil
}

type guardUnsyncedFile struct{ fsys.File }

func (guardUnsyncedFile) Sync() error { return nil }

// guardFault is how a step goes wrong.
type guardFault struct {
	name  string
	err   error
	taken bool // the step is carried out, in spite of its error
	last  bool // a crash: no step after it is carried out
}

// A crash after a step is the same as a crash before the next.
var guardFaults = []guardFault{
	{name: "a crash before", err: fsys.ErrCrashed, last: true},
	{name: "a full disk at", err: syscall.ENOSPC},
	{name: "an I/O error in spite of", err: syscall.EIO, taken: true},
}

// guardDisturb is a file system whose n-th step, counted from 0, goes wrong. It
// also returns the steps that were taken.
func guardDisturb(n int, fault guardFault) (*fsys.Faulty, *[]fsys.Step) {
	var mu sync.Mutex
	var steps []fsys.Step
	broken := false
	at := func(s fsys.Step, before bool) error {
		mu.Lock()
		defer mu.Unlock()
		if before {
			if broken && fault.last {
				if s.Op == "close" {
					return nil // the kernel does that
				}
				return fault.err
			}
			steps = append(steps, s)
		}
		if len(steps)-1 == n && before != fault.taken && !broken {
			broken = true
			return fault.err
		}
		return nil
	}
	return &fsys.Faulty{
		FS:     guardUnsynced{},
		Before: func(s fsys.Step) error { return at(s, true) },
		After:  func(s fsys.Step) error { return at(s, false) },
	}, &steps
}

// guardEveryStep disturbs a scene at each step in each way, and reports
// everything that is wrong afterwards.
func guardEveryStep(t *testing.T, g guardScene, faults []guardFault, report func(when, wrong string)) {
	t.Helper()
	for _, fault := range faults {
		for n := 0; ; n++ {
			path := g.set(t)
			f := guardOpen(t, path)
			disk, steps := guardDisturb(n, fault)
			f.fs = disk
			err := g.call(context.Background(), f)
			if len(*steps) <= n { // the call has no such step: all went well
				if err != nil || n < 5 {
					t.Fatalf("undisturbed: %v after %d steps", err, n)
				}
				break
			}
			when := fmt.Sprintf("%s step %d (%s %s), answered %v", fault.name, n, (*steps)[n].Op, filepath.Base((*steps)[n].Path), err)
			if wrong := g.judge(path, err); wrong != "" {
				report(when, wrong)
			}
			if fault.last {
				continue
			}
			// The process lives on. It has removed its staged file, unless that
			// failed.
			names, _ := fsys.OS{}.Names(fsys.Anywhere(filepath.Dir(path)))
			for _, name := range names {
				if guardIsStage(name) && (*steps)[n].Op != "remove" {
					report(when, name+" is left in the directory")
				}
			}
		}
	}
}

func TestGuardCrashOrErrorAtAnyStepLeavesTheFileWholeAndTheMarkHighEnough(t *testing.T) {
	t.Parallel()
	for _, g := range guardScenes {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			guardEveryStep(t, g, guardFaults, func(when, wrong string) { t.Errorf("%s: %s", when, wrong) })
		})
	}
}

// guardSwapFirst is Write with its two halves in the wrong order.
func guardSwapFirst(ctx context.Context, f *File) error {
	v, err := f.visit()
	if err != nil {
		return err
	}
	defer v.leave()
	s, err := v.stage(nil)
	if err != nil {
		return err
	}
	if _, err := s.file.Write([]byte(guardNew)); err != nil {
		return s.drop(err)
	}
	in, err := v.enter(ctx)
	if err != nil {
		return s.drop(err)
	}
	defer in.leave()
	next := in.state
	if next.mark, err = in.state.mark.Admit(guardStamp(20)); err != nil {
		return s.drop(err)
	}
	if err := s.install(); err != nil {
		return s.drop(err)
	}
	return s.drop(in.advance(next))
}

func TestGuardThatSwapsBeforeItAdvancesIsCaught(t *testing.T) {
	t.Parallel()
	caught := 0
	g := guardScene{"", "old content\n", 10, guardSwapFirst, true}
	guardEveryStep(t, g, guardFaults[:1], func(when, wrong string) {
		caught++
		if !strings.Contains(wrong, "the content is new and the mark is old") {
			t.Errorf("%s: %s", when, wrong)
		}
	})
	if caught == 0 {
		t.Error("no crash showed that the content was swapped before the mark was advanced")
	}
}

func TestGuardTornSidecarWritesLoseNothing(t *testing.T) {
	t.Parallel()
	for _, g := range guardScenes {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			for nth := 0; ; nth++ { // of the writes to the sidecar
				more := false
				for tear := 0; tear <= slotSize; tear += 1 + tear*2/3 {
					path := g.set(t)
					f := guardOpen(t, path)
					writes, crashed := 0, false
					f.fs = &fsys.Faulty{
						FS: guardUnsynced{},
						Before: func(s fsys.Step) error {
							if s.Op == "write" && strings.HasSuffix(s.Path, guardSuffix) {
								writes++
								crashed = crashed || writes-1 == nth
							}
							if crashed && s.Op != "close" {
								return fsys.ErrCrashed
							}
							return nil
						},
						Tear: func(s fsys.Step, _ int) int {
							if strings.HasSuffix(s.Path, guardSuffix) && writes-1 == nth {
								return tear
							}
							return -1
						},
					}
					err := g.call(context.Background(), f)
					if more = crashed; !more {
						break
					}
					if wrong := g.judge(path, err); wrong != "" {
						t.Errorf("write %d to the sidecar torn after %d bytes, answered %v: %s", nth, tear, err, wrong)
					}
				}
				if !more {
					return
				}
			}
		})
	}
}

// TestGuardSyncsBeforeWhatRestsOnIt checks the order of steps. A test cannot
// cut the power, but it can see which files are not yet on the disk.
func TestGuardSyncsBeforeWhatRestsOnIt(t *testing.T) {
	for _, g := range guardScenes {
		t.Run(g.name, func(t *testing.T) {
			path := g.set(t)
			f := guardOpen(t, path)
			disk, steps := guardDisturb(-1, guardFault{})
			f.fs = disk
			if err := g.call(t.Context(), f); err != nil {
				t.Fatal(err)
			}
			dirty := map[string]bool{}
			renamed, named := false, false
			for i, s := range *steps {
				switch s.Op {
				case "write", "fchmod", "fchown":
					dirty[s.Path] = true
				case "sync":
					delete(dirty, s.Path)
				case "syncdir":
					named = true
				case "rename":
					renamed, named = true, false
					if len(dirty) > 0 {
						t.Errorf("step %d renames the content while %v is not synced", i, dirty)
					}
				}
			}
			if g.writes != renamed || !named && (g.writes || g.token == 0) {
				t.Errorf("the directory is not synced after the last change of names: %v", *steps)
			}
		})
	}
}

func TestGuardRemovesWhatCrashedWritesLeftAnHourAgo(t *testing.T) {
	g := guardScenes[2]
	path := g.set(t)
	f := guardOpen(t, path)
	f.fs = &fsys.Faulty{FS: fsys.OS{}, Before: guardCrashAt("rename")}
	if err := guardWriteNew(t.Context(), f); !errors.Is(err, fsys.ErrCrashed) {
		t.Fatal(err)
	}
	staged := guardStaged(t, path)
	if len(staged) != 1 || !strings.HasPrefix(filepath.Base(staged[0]), ".artifact.croft-stage-") {
		t.Fatalf("staged: %v, want one with a name that can be recognised", staged)
	}
	// A young file may belong to another write that goes on.
	guardPut(t, guardOpen(t, path), 21, "next")
	if left := guardStaged(t, path); len(left) != 1 {
		t.Fatalf("a young one was removed")
	}
	old := time.Now().Add(-2 * guardStageAge)
	if err := os.Chtimes(staged[0], old, old); err != nil {
		t.Fatal(err)
	}
	// It is old, but still in use by a writer whose content is slow to arrive.
	slow, err := os.OpenFile(staged[0], os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := guardTryLock(slow); !ok {
		t.Fatal(err)
	}
	guardPut(t, guardOpen(t, path), 22, "next")
	if left := guardStaged(t, path); len(left) != 1 {
		t.Fatalf("one in use was removed")
	}
	slow.Close()
	// Files that only look similar stay.
	for _, name := range []string{".other.croft-stage-0123456789abcdef", ".artifact.croft-stage-notes", ".artifact"} {
		other := filepath.Join(filepath.Dir(path), name)
		if err := os.WriteFile(other, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(other, old, old); err != nil {
			t.Fatal(err)
		}
	}
	guardPut(t, guardOpen(t, path), 23, "next")
	left := guardStaged(t, path)
	if len(left) != 1 || filepath.Base(left[0]) != ".other.croft-stage-0123456789abcdef" {
		t.Errorf("staged: %v, want only that of another file", left)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(path), ".artifact.croft-stage-notes")); err != nil {
		t.Error(err)
	}
}

// guardCrashAt crashes before the first step of that name.
func guardCrashAt(op string) func(fsys.Step) error {
	crashed := false
	return func(s fsys.Step) error {
		if crashed = crashed || s.Op == op; crashed && s.Op != "close" { // the kernel closes open files
			return fsys.ErrCrashed
		}
		return nil
	}
}

func guardStaged(t testing.TB, path string) []string {
	t.Helper()
	names, err := fsys.OS{}.Names(fsys.Anywhere(filepath.Dir(path)))
	if err != nil {
		t.Fatal(err)
	}
	var staged []string
	for _, name := range names {
		if guardIsStage(name) {
			staged = append(staged, filepath.Join(filepath.Dir(path), name))
		}
	}
	return staged
}
