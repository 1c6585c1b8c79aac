//go:build linux || darwin

package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/fsys"
	"github.com/croft-dev/croft/internal/test/testenv"
)

// guardDisk is a file system that can lose its power. It remembers which part
// of the sidecar's content, and which names in its directory, are on the disk.
// It takes staged content to be on the disk: TestGuardSyncsBeforeWhatRestsOnIt
// checks that.
type guardDisk struct {
	fsys.FS
	path string // of the artifact

	synced  []byte // the sidecar's content on the disk
	named   bool   // the sidecar's name is on the disk
	content []byte // of the artifact that the directory on the disk names; nil if none

	deaf     bool // broken: a sync of the sidecar does nothing
	blind    bool // broken: no process sees that the last one inside has died
	nameless bool // broken: a sync of the directory does nothing for the sidecar
}

func (d *guardDisk) Open(path fsys.Path, flag int, perm fs.FileMode) (fsys.File, error) {
	file, err := d.FS.Open(path, flag, perm)
	if err != nil {
		return nil, err
	}
	return guardDiskFile{file, d, path.String() == d.path+guardSuffix}, nil
}

func (d *guardDisk) SyncDir(fsys.Path) error {
	_, err := os.Lstat(d.path + guardSuffix)
	d.named = err == nil && !d.nameless
	if d.content, err = os.ReadFile(d.path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

type guardDiskFile struct {
	fsys.File
	disk    *guardDisk
	sidecar bool
}

func (f guardDiskFile) Sync() (err error) {
	if f.sidecar && !f.disk.deaf {
		f.disk.synced, err = os.ReadFile(f.disk.path + guardSuffix)
	}
	return err
}

func (f guardDiskFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	if f.sidecar && f.disk.blind && off == 0 && n == slotFile {
		copy(p[slotInside:], slotNobody)
	}
	return n, err
}

// cut leaves what a power cut may leave. Each page written since the last sync
// is the old one, the new one or a mix. Each name leads to the old file or the
// new.
func (d *guardDisk) cut(dice *rand.Rand) error {
	now, err := os.ReadFile(d.path + guardSuffix)
	if err == nil {
		if !d.named && dice.IntN(2) == 0 {
			err = os.Remove(d.path + guardSuffix)
		} else {
			err = os.WriteFile(d.path+guardSuffix, guardMix(dice, d.synced, now), 0o600)
		}
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil || dice.IntN(2) == 0 {
		return err
	}
	if d.content == nil {
		if err = os.Remove(d.path); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return err
	}
	return os.WriteFile(d.path, d.content, 0o600)
}

// guardMix is a file of which some pages have reached the disk. It grows from
// front to back.
func guardMix(dice *rand.Rand, old, now []byte) []byte {
	if len(now) > len(old) {
		now = now[:len(old)+dice.IntN(len(now)-len(old)+1)]
	}
	mixed := slices.Clone(now)
	for from := 0; from < len(old); from += slotSize {
		to := min(from+slotSize, len(old))
		keep := []int{0, to - from, dice.IntN(to - from)}[dice.IntN(3)] // of the new page
		copy(mixed[from+keep:to], old[from+keep:to])
	}
	return mixed
}

// killed starts a process that makes one call with a token, and kills it after
// so many steps. If only is set, it counts only steps of that kind on the
// sidecar. It returns the number of steps.
func (d *guardDisk) killed(t *testing.T, raise bool, token fence.Token, after int, only string) (steps int, err error) {
	t.Helper()
	f, err := Open(d.path, &Options{LockWait: -1})
	if err != nil {
		t.Fatal(err)
	}
	f.fs = &fsys.Faulty{FS: d, Before: func(s fsys.Step) error {
		if s.Op == "close" { // the kernel closes a dead process's files
			return nil
		}
		if steps >= after {
			return fsys.ErrCrashed
		}
		if only == "" || s.Op == only && strings.HasSuffix(s.Path, guardSuffix) {
			steps++
		}
		return nil
	}}
	if raise {
		_, err = f.Raise(context.Background(), guardStamp(token))
	} else {
		_, err = f.Write(context.Background(), guardStamp(token), strings.NewReader(fmt.Sprint(token)))
	}
	if err != nil && !errors.Is(err, fsys.ErrCrashed) {
		t.Fatalf("a killed process got another error: %v", err)
	}
	return steps, err
}

const guardUnharmed = 1000 // more steps than any call takes

// guardLife lets processes come, write or raise, and be killed at any step.
// Then it cuts the power. It returns the story of a failure, or "".
func guardLife(t *testing.T, seed uint64, spoil func(*guardDisk)) string {
	t.Helper()
	dice := rand.New(rand.NewPCG(seed, 7))
	disk := &guardDisk{FS: fsys.OS{}, path: filepath.Join(testenv.Memory(t), "artifact")}
	spoil(disk)
	var highest fence.Token // the last one that a caller was told is admitted
	var story []string
	for token := range fence.Token(1 + dice.IntN(5)) {
		token++
		// Killed after any step, or after a write to the sidecar, where it
		// hurts most, or not at all.
		after, only := dice.IntN(30), ""
		switch dice.IntN(3) {
		case 0:
			after, only = dice.IntN(4), "write"
		case 1:
			after = guardUnharmed
		}
		raise := dice.IntN(3) == 0
		_, err := disk.killed(t, raise, token, after, only)
		story = append(story, fmt.Sprintf("token %d (raise: %v), killed after step %d %s: %v", token, raise, after, only, err))
		if err == nil {
			highest = token
		}
	}
	if err := disk.cut(dice); err != nil {
		t.Fatal(err)
	}
	f, err := Open(disk.path, nil)
	if err != nil {
		t.Fatal(err)
	}
	mark, err := f.Mark(context.Background())
	var seen fence.Token
	if content, err := os.ReadFile(disk.path); err == nil {
		if _, err := fmt.Sscan(string(content), &seen); err != nil {
			return strings.Join(append(story, fmt.Sprintf("the content is %q", content)), "\n")
		}
	}
	switch {
	case err != nil:
		story = append(story, err.Error())
	case mark.Token < highest:
		story = append(story, fmt.Sprintf("token %d was admitted, and the mark is %d", highest, mark.Token))
	case mark.Token < seen:
		story = append(story, fmt.Sprintf("the content is of token %d, and the mark is %d", seen, mark.Token))
	default:
		return ""
	}
	return strings.Join(story, "\n")
}

func TestGuardPowerCutLeavesTheMarkHighEnough(t *testing.T) {
	t.Parallel()
	for seed := range uint64(150) {
		if wrong := guardLife(t, seed, func(*guardDisk) {}); wrong != "" {
			t.Fatalf("life %d:\n%s", seed, wrong)
		}
	}
}

// TestGuardPowerCutIsFeltWhereSyncsAreMissing: disks that do not sync are
// caught. Otherwise the test above would show nothing.
func TestGuardPowerCutIsFeltWhereSyncsAreMissing(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*guardDisk){
		"a sync of the sidecar does nothing":   func(d *guardDisk) { d.deaf = true },
		"a sync of the directory does nothing": func(d *guardDisk) { d.nameless = true },
	} {
		wrong := ""
		for seed := uint64(0); seed < 150 && wrong == ""; seed++ {
			wrong = guardLife(t, seed, spoil)
		}
		if wrong == "" {
			t.Errorf("not noticed: %s", name)
		}
		t.Logf("%s:\n%s", name, wrong)
	}
}

// guardTwoDeaths kills one process at any step and the next one at any step.
// Then it cuts the power in any way. It returns the first failure, or "".
//
// This is why the guard checks whether the process before it has signed out:
// here both slots are written and neither is synced.
func guardTwoDeaths(t *testing.T, spoil func(*guardDisk)) string {
	t.Helper()
	disk := &guardDisk{FS: fsys.OS{}, path: filepath.Join(testenv.Memory(t), "artifact")}
	for token := range fence.Token(3) {
		if _, err := disk.killed(t, true, token+1, guardUnharmed, ""); err != nil {
			t.Fatal(err)
		}
	}
	calm := disk.synced
	spoil(disk)
	for first, more := 0, true; more; first++ {
		for second, again := 0, true; again; second++ {
			if err := os.WriteFile(disk.path+guardSuffix, calm, 0o600); err != nil {
				t.Fatal(err)
			}
			disk.synced = calm
			steps, err := disk.killed(t, true, 4, first, "")
			more = steps == first
			highest := fence.Token(3)
			if err == nil {
				highest = 4
			}
			steps, err = disk.killed(t, true, 5, second, "")
			again = steps == second
			if err == nil {
				highest = 5
			}
			now, err := os.ReadFile(disk.path + guardSuffix)
			if err != nil {
				t.Fatal(err)
			}
			for cut := range 9 {
				image := slices.Clone(now)
				for i, keep := range []int{[]int{0, 100, slotSize}[cut%3], []int{0, 100, slotSize}[cut/3]} {
					copy(image[i*slotSize+keep:(i+1)*slotSize], disk.synced[i*slotSize+keep:])
				}
				s, _, err := slotNewest(image)
				if err != nil || s.mark.Token < highest {
					return fmt.Sprintf("killed after steps %d and %d, cut %d: token %d was admitted, the mark is %d, %v", first, second, cut, highest, s.mark.Token, err)
				}
			}
		}
	}
	return ""
}

func TestGuardTwoDeathsAndAPowerCutLeaveTheMarkHighEnough(t *testing.T) {
	t.Parallel()
	if wrong := guardTwoDeaths(t, func(*guardDisk) {}); wrong != "" {
		t.Error(wrong)
	}
	wrong := guardTwoDeaths(t, func(d *guardDisk) { d.blind = true })
	if wrong == "" {
		t.Error("a guard that does not see that the one before it died is not noticed")
	}
	t.Log("a guard that does not see that the one before it died:", wrong)
}
