package dir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/fsys"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store/cas"
)

// must fails the test at the first error.
func must(tb testing.TB, errs ...error) {
	tb.Helper()
	for _, err := range errs {
		if err != nil {
			tb.Fatal(err)
		}
	}
}

// modeAndOwner describes the permissions and the owner of a file.
func modeAndOwner(tb testing.TB, path string) string {
	tb.Helper()
	info, err := os.Lstat(path)
	must(tb, err)
	owner := info.Sys().(*syscall.Stat_t)
	return fmt.Sprintf("%v %d:%d", info.Mode(), owner.Uid, owner.Gid)
}

// sharedDir makes an empty directory for a store that root shares with the
// neighbour, set up as the package comment says. Beside it is a folder of
// root's, the victim.
func sharedDir(t *testing.T) (root, victim string) {
	t.Helper()
	testenv.NeedRoot(t)
	base := testenv.OpenDir(t)
	root, victim = filepath.Join(base, "store"), filepath.Join(base, "victim")
	must(t, os.Mkdir(root, 0o700), os.Chown(root, -1, testenv.NeighbourGroup), os.Chmod(root, 0o770|fs.ModeSetgid),
		os.Mkdir(victim, 0o755))
	for _, name := range victims {
		must(t, os.WriteFile(filepath.Join(victim, name), []byte("root's"), 0o600))
	}
	return root, victim
}

var victims = []string{"1", "2", "3", "4", "5", "6"}

// swap is the neighbour's attack on a file or folder: it moves the original
// away and puts a link in its place.
const swap = `mv "$1" "$1.away"; ln -s "$2" "$1"`

func TestASweepRemovesNothingThroughALink(t *testing.T) {
	for _, moment := range []string{"before the listing", "after the listing"} {
		t.Run(moment, func(t *testing.T) {
			root, victim := sharedDir(t)
			attacked := 0
			attack := func(s fsys.Step, now string) error {
				if now == moment && s.Op == "names" && strings.Contains(s.Path, "croft-dropped-") && attacked == 0 {
					attacked++
					testenv.AsNeighbour(t, swap, s.Path, victim)
				}
				return nil
			}
			st := open(t, root, &Options{fs: &fsys.Faulty{
				FS:     unsynced{fsys.OS{}},
				Before: func(s fsys.Step) error { return attack(s, "before the listing") },
				After:  func(s fsys.Step) error { return attack(s, "after the listing") },
			}})
			defer st.Close()
			testenv.AsNeighbour(t, `mkdir "$1"; for n in 1 2 3 4 5 6; do : > "$1/$n"; done; touch -d '3 hours ago' "$1"`,
				filepath.Join(root, "tmp", "croft-born-0123456789abcdef"))
			_, _ = st.Sweep(t.Context()) // its result does not matter
			if attacked != 1 {
				t.Fatal("the sweep did not come to the neighbour's folder")
			}
			for _, name := range victims {
				if _, err := os.Lstat(filepath.Join(victim, name)); err != nil {
					t.Errorf("root removed a file of its own through the neighbour's link: %v", err)
				}
			}
		})
	}
}

func TestPermissionsAreNotGivenThroughALink(t *testing.T) {
	for _, what := range []string{"a file", "a folder"} {
		t.Run(what, func(t *testing.T) {
			root, victim := sharedDir(t)
			target := victim
			if what == "a file" {
				target = filepath.Join(victim, victims[0])
			}
			before := modeAndOwner(t, target)
			armed, attacked := false, 0
			st := open(t, root, &Options{fs: &fsys.Faulty{FS: unsynced{fsys.OS{}}, Before: func(s fsys.Step) error {
				if armed && s.Op == "chmod" {
					attacked++
					testenv.AsNeighbour(t, swap, s.Path, target)
				}
				return nil
			}}})
			defer st.Close()
			armed = true
			a := one(st, acquire("job", "root"))
			if attacked == 0 {
				t.Fatal("the store gave no folder its permissions")
			}
			if after := modeAndOwner(t, target); after != before {
				t.Errorf("%s of root's was %s, and is %s now", what, before, after)
			}
			if a.Err == nil {
				t.Error("the key was granted although its folder was swapped for a link")
			}
		})
	}
}

// strangers make things that a neighbour may put in a file's place.
var strangers = map[string]func(path string) error{
	"pipe":         func(path string) error { return syscall.Mkfifo(path, 0o666) },
	"endless link": func(path string) error { return os.Symlink("/dev/zero", path) },
	"link to pipe": func(path string) error {
		return errors.Join(syscall.Mkfifo(path+".pipe", 0o666), os.Symlink(path+".pipe", path))
	},
	"huge file": func(path string) error {
		return errors.Join(os.WriteFile(path, nil, 0o666), os.Truncate(path, 1<<40))
	},
}

// inTime fails the test if a call does not return.
func inTime[T any](t *testing.T, call func() T) T {
	t.Helper()
	answer := make(chan T, 1)
	go func() { answer <- call() }()
	select {
	case a := <-answer:
		return a
	case <-time.After(testenv.Patience):
		t.Fatal("it hangs")
		panic("unreachable")
	}
}

func TestOnlyRegularFilesOfReasonableSizeAreRead(t *testing.T) {
	for name, plant := range strangers {
		t.Run(name+" as a version", func(t *testing.T) {
			p := newFixture(t)
			p.must(acquire("job", "ann"))
			p.must(acquire("beside", "ann"))
			path := p.newest("job")
			must(t, os.Remove(path), plant(path))
			st := p.another(nil)
			var damaged *DamagedError
			err := inTime(t, func() error { return one(st, acquire("job", "bob")).Err })
			if !errors.As(err, &damaged) || damaged.Path != path {
				t.Errorf("an acquire is answered %v", err)
			}
			listed := 0
			err = inTime(t, func() (failed error) {
				for _, err := range st.List(t.Context(), "") {
					if failed = err; err == nil {
						listed++
					}
				}
				return failed
			})
			if listed != 1 || !errors.Is(err, cas.ErrDamaged) {
				t.Errorf("%d keys are listed, and then %v", listed, err)
			}
			_ = inTime(t, func() error { _, err := st.Examine(t.Context()); return err }) // any result, but in time
		})
		t.Run(name+" as the stamp of tidying", func(t *testing.T) {
			p := newFixture(t)
			p.tidy.close()
			must(t, plant(filepath.Join(p.reg.tmp, stampName)))
			alone := &tidying{reg: p.reg, retention: retention}
			inTime(t, func() time.Time { return alone.piece(t.Context(), p.clock.Now()) })
			if stamp := inTime(t, alone.read); stamp.Due.IsZero() {
				t.Error("the next one to tidy finds no stamp")
			}
		})
		t.Run(name+" as the marker", func(t *testing.T) {
			p := newFixture(t)
			path := filepath.Join(p.root, markerName)
			must(t, os.Remove(path), plant(path))
			err := inTime(t, func() error { _, err := Open(p.root, nil); return err })
			if err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("it opens with %v", err)
			}
		})
	}
}

func TestAStoreFollowsNoLinkInThePlaceOfItsFolders(t *testing.T) {
	for _, which := range []string{"tmp", "keys", "shard", "home", "life"} {
		t.Run(which, func(t *testing.T) {
			p := newFixture(t)
			p.must(acquire("job", "ann"))
			hash := hashOf("job")
			path := map[string]string{
				"tmp": p.reg.tmp, "keys": p.reg.keys, "shard": p.reg.shard(hash), "home": p.reg.home(hash), "life": p.folder("job"),
			}[which]
			away := filepath.Join(testenv.Memory(t), "away")
			must(t, os.Rename(path, away), os.Symlink(away, path))
			files, folders := census(t, away)
			st := p.on(unsynced{fsys.OS{}})
			p.clock.Advance(time.Hour)
			a := one(st, acquire("job", "bob"))
			if !errors.Is(a.Err, syscall.ELOOP) || !strings.Contains(a.Err.Error(), "see who put it there") {
				t.Errorf("an acquire is answered %v", a.Err)
			}
			_, _ = st.Sweep(t.Context())
			if f, d := census(t, away); f != files || d != folders {
				t.Errorf("%d files and %d folders are behind the link, there were %d and %d", f, d, files, folders)
			}
		})
	}
	t.Run("its own directory may be a link", func(t *testing.T) {
		p := newFixture(t)
		link := filepath.Join(testenv.Memory(t), "link")
		must(t, os.Symlink(p.root, link))
		st := open(t, link, nil)
		defer st.Close()
		if a := one(st, acquire("job", "ann")); a.Err != nil {
			t.Error(a.Err)
		}
	})
}
