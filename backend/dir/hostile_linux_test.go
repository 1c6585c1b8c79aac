package dir

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/fsys"
	"github.com/croft-dev/croft/internal/testenv"
	"github.com/croft-dev/croft/store/cas"
)

// The neighbour is another user of this machine, who shares a folder with root
// and attacks it. Each attack happens at a chosen step of root's, through a
// hook. If an attack does not get to its step, the test fails.
const (
	neighbour      = 64202
	neighbourGroup = 64201
)

// asNeighbour runs a shell script as the neighbour.
func asNeighbour(tb testing.TB, script string, args ...string) {
	tb.Helper()
	cmd := exec.Command("/bin/sh", append([]string{"-euc", script, "sh"}, args...)...)
	cmd.Dir = "/"
	cmd.SysProcAttr = asUser()
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Errorf("the neighbour's %q %q: %v: %s", script, args, err, out)
	}
}

func asUser() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: &syscall.Credential{
		Uid: neighbour, Gid: neighbour, Groups: []uint32{neighbourGroup},
	}}
}

// sharedDir makes an empty directory for a store that root shares with the
// neighbour, set up as the package comment says. Beside it is a folder of
// root's, the victim.
func sharedDir(t *testing.T) (root, victim string) {
	t.Helper()
	needRoot(t)
	base := openDir(t)
	root, victim = filepath.Join(base, "store"), filepath.Join(base, "victim")
	guardMust(t, os.Mkdir(root, 0o700), os.Chown(root, -1, neighbourGroup), os.Chmod(root, 0o770|fs.ModeSetgid),
		os.Mkdir(victim, 0o755))
	for _, name := range victims {
		guardMust(t, os.WriteFile(filepath.Join(victim, name), []byte("root's"), 0o600))
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
					asNeighbour(t, swap, s.Path, victim)
				}
				return nil
			}
			st := open(t, root, &Options{fs: &fsys.Faulty{
				FS:     unsynced{fsys.OS{}},
				Before: func(s fsys.Step) error { return attack(s, "before the listing") },
				After:  func(s fsys.Step) error { return attack(s, "after the listing") },
			}})
			defer st.Close()
			asNeighbour(t, `mkdir "$1"; for n in 1 2 3 4 5 6; do : > "$1/$n"; done; touch -d '3 hours ago' "$1"`,
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
			before := guardModes(t, target)
			armed, attacked := false, 0
			st := open(t, root, &Options{fs: &fsys.Faulty{FS: unsynced{fsys.OS{}}, Before: func(s fsys.Step) error {
				if armed && s.Op == "chmod" {
					attacked++
					asNeighbour(t, swap, s.Path, target)
				}
				return nil
			}}})
			defer st.Close()
			armed = true
			a := one(st, acquire("job", "root"))
			if attacked == 0 {
				t.Fatal("the store gave no folder its permissions")
			}
			if after := guardModes(t, target); after != before {
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
			guardMust(t, os.Remove(path), plant(path))
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
			guardMust(t, plant(filepath.Join(p.reg.tmp, stampName)))
			alone := &tidying{reg: p.reg, retention: retention}
			inTime(t, func() time.Time { return alone.piece(t.Context(), p.clock.Now()) })
			if stamp := inTime(t, alone.read); stamp.Due.IsZero() {
				t.Error("the next one to tidy finds no stamp")
			}
		})
		t.Run(name+" as the marker", func(t *testing.T) {
			p := newFixture(t)
			path := filepath.Join(p.root, markerName)
			guardMust(t, os.Remove(path), plant(path))
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
			guardMust(t, os.Rename(path, away), os.Symlink(away, path))
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
		guardMust(t, os.Symlink(p.root, link))
		st := open(t, link, nil)
		defer st.Close()
		if a := one(st, acquire("job", "ann")); a.Err != nil {
			t.Error(a.Err)
		}
	})
}

// TestAWriteStaysInTheFolderThatItHasInspected: the neighbour owns the folder
// above a file, and root writes the file.
func TestAWriteStaysInTheFolderThatItHasInspected(t *testing.T) {
	for what, attack := range map[string]string{
		"a link":               `mv "$1" "$1.away"; ln -s "$2" "$1"`,
		"another folder":       `mv "$1" "$1.away"; mv "$2" "$1"`,
		"a folder of its own":  `mv "$1" "$1.away"; mkdir "$1"; : > "$1/artifact"`,
		"nothing":              `mv "$1" "$1.away"`,
		"a link, and put back": `mv "$1" "$1.away"; ln -s "$2" "$1"; rm "$1"; mv "$1.away" "$1"`,
	} {
		for _, op := range []string{"open", "rename"} {
			t.Run(what+" at "+op, func(t *testing.T) {
				needRoot(t)
				mine := filepath.Join(openDir(t), "mine")
				folder, secret := filepath.Join(mine, "folder"), filepath.Join(mine, "secret")
				path := filepath.Join(folder, "artifact")
				guardMust(t, os.MkdirAll(folder, 0o755), os.WriteFile(path, []byte("old"), 0o644), os.Mkdir(secret, 0o700))
				for _, its := range []string{mine, folder, path} {
					guardMust(t, os.Chown(its, neighbour, neighbour))
				}
				before, err := os.Lstat(secret)
				guardMust(t, err)
				f := guardOpen(t, path)
				attacked := false
				f.fs = &fsys.Faulty{FS: fsys.OS{}, Before: func(s fsys.Step) error {
					mine := guardIsStage(filepath.Base(s.Path))
					if op == "rename" {
						mine = s.Path == path
					}
					if s.Op == op && mine && !attacked {
						attacked = true
						asNeighbour(t, attack, folder, secret)
					}
					return nil
				}}
				_, err = f.Write(t.Context(), guardStamp(1), strings.NewReader("new"))
				if !attacked {
					t.Fatal("the attack did not get to its step")
				}
				if what == "a link, and put back" && err != nil {
					t.Errorf("a write whose folder is where it was: %v", err)
				}
				if op == "open" && what != "a link, and put back" && err == nil {
					t.Error("a write into a folder that was taken away is confirmed")
				}
				for _, place := range []string{secret, folder} { // the attack may have moved it
					info, err := os.Lstat(place)
					if err != nil || !os.SameFile(info, before) {
						continue
					}
					names, err := os.ReadDir(place)
					guardMust(t, err)
					for _, name := range names {
						t.Errorf("root's folder has %s now, which is %s", name.Name(), guardModes(t, filepath.Join(place, name.Name())))
					}
				}
			})
		}
	}
}

func TestAPlantedSidecarIsNotTrusted(t *testing.T) {
	needRoot(t)
	dir := guardOpenDir(t, 0o777|fs.ModeSticky)
	path := filepath.Join(dir, "artifact")
	plant := func() {
		t.Helper()
		planted := filepath.Join(openDir(t), "planted")
		image := slotImageOf(slotSample(3), slotSample(4))
		guardMust(t, os.WriteFile(planted, image, 0o644))
		asNeighbour(t, `cat "$1" > "$2"; chmod 666 "$2"`, planted, path+guardSuffix)
	}
	plant()
	f := guardOpen(t, path)
	_, write := f.Write(t.Context(), guardStamp(900), strings.NewReader("root's"))
	_, raise := f.Raise(t.Context(), guardStamp(900))
	_, mark := f.Mark(t.Context())
	for verb, err := range map[string]error{"write": write, "raise": raise, "mark": mark} {
		var refused *SidecarError
		repair := "rm '" + path + guardSuffix + "' && croft guard raise"
		if !errors.As(err, &refused) || !refused.Foreign || !contains(err.Error(), "user 64202", repair) {
			t.Errorf("%s: %v; want it refused with the repair", verb, err)
		}
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file was written: %v", err)
	}
	// The repair works, and the guard trusts a sidecar that root has made.
	guardMust(t, os.Remove(path+guardSuffix))
	guardPut(t, f, 1, "one")
	guardPut(t, f, 2, "two")
	// It also trusts a sidecar of the file's owner.
	guardMust(t, os.Chown(path, neighbour, neighbour))
	guardPut(t, f, 3, "three")
	guardPut(t, f, 4, "four")
	guardHas(t, f, 4, "four")
}

// TestALinkPlantedInAStickyDirectoryIsNotFollowed: a shell's redirection would
// not follow it on Linux either (fs.protected_symlinks).
func TestALinkPlantedInAStickyDirectoryIsNotFollowed(t *testing.T) {
	needRoot(t)
	dir, victim := guardOpenDir(t, 0o777|fs.ModeSticky), filepath.Join(t.TempDir(), "victim")
	guardMust(t, os.WriteFile(victim, []byte("root's"), 0o600))
	path := filepath.Join(dir, "artifact")
	asNeighbour(t, `ln -s "$1" "$2"`, victim, path)
	f, err := OpenFile(path, nil)
	if !errors.Is(err, fence.ErrInvalid) || !contains(err.Error(), path, "user 64202") {
		t.Errorf("it opens as %v, %v", f, err)
	}
	// A link of root's own is followed.
	guardMust(t, os.Remove(path), os.Symlink(victim, path))
	guardPut(t, guardOpen(t, path), 1, "new")
	if got, err := os.ReadFile(victim); string(got) != "new" {
		t.Errorf("behind root's own link is %q, %v", got, err)
	}
}

// TestAFileOfAnothersIsNeverTakenForTheSidecar: the neighbour links an empty
// file of root's in the sidecar's place (where fs.protected_hardlinks is off).
// It removes the link whenever root looks at the open file.
func TestAFileOfAnothersIsNeverTakenForTheSidecar(t *testing.T) {
	needRoot(t)
	dir := guardOpenDir(t, 0o755)
	path, victim := filepath.Join(dir, "artifact"), filepath.Join(dir, "victim")
	guardMust(t, os.WriteFile(path, []byte("old"), 0o644), os.Chown(path, neighbour, neighbour),
		os.WriteFile(victim, nil, 0o600), os.Link(victim, path+guardSuffix))
	before := guardModes(t, victim)
	f := guardOpen(t, path)
	attacked := false
	f.fs = &fsys.Faulty{
		FS: fsys.OS{},
		Before: func(s fsys.Step) error {
			if s.Op == "fstat" && s.Path == path+guardSuffix {
				attacked = true
				return os.Remove(s.Path)
			}
			return nil
		},
		After: func(s fsys.Step) error {
			if s.Op == "fstat" && s.Path == path+guardSuffix {
				return os.Link(victim, s.Path)
			}
			return nil
		},
	}
	_, err := f.Write(t.Context(), guardStamp(1), strings.NewReader("new"))
	if !attacked || err == nil || !strings.Contains(err.Error(), "hard links") {
		t.Errorf("attacked: %t; the write ends with %v", attacked, err)
	}
	content, err := os.ReadFile(victim)
	guardMust(t, err)
	if after := guardModes(t, victim); after != before || len(content) > 0 {
		t.Errorf("root's file was %s, and is %s now, with %d bytes", before, after, len(content))
	}
}

// TestNeighbourChild is the neighbour's part of the test below.
func TestNeighbourChild(t *testing.T) {
	path := os.Getenv("CROFT_TEST_NEIGHBOUR_LOCKS")
	if path == "" {
		return
	}
	file, err := os.Open(path)
	if err == nil {
		err = unix.Flock(int(file.Fd()), unix.LOCK_EX)
	}
	testenv.Say("locked", err)
	bufio.NewScanner(os.Stdin).Scan() // until the test ends it
}

func TestAReaderCannotKeepWritersWaiting(t *testing.T) {
	needRoot(t)
	dir := guardOpenDir(t, 0o755)
	path := filepath.Join(dir, "artifact")
	guardMust(t, os.WriteFile(path, []byte("public"), 0o644), os.Chmod(path, 0o644))
	f, err := OpenFile(path, &FileOptions{LockWait: -1})
	guardMust(t, err)
	guardPut(t, f, 1, "one")
	cmd := exec.Command(copyOf(t, self(t), filepath.Join(openDir(t), "program")), "-test.run=^TestNeighbourChild$")
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "CROFT_TEST_NEIGHBOUR_LOCKS="+path+guardSuffix)
	cmd.SysProcAttr = asUser()
	in, err := cmd.StdinPipe()
	guardMust(t, err)
	out, err := cmd.StdoutPipe()
	guardMust(t, err, cmd.Start())
	defer func() { _ = in.Close(); _ = cmd.Wait() }()
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.Contains(lines.Text(), "locked") {
	}
	if !strings.Contains(lines.Text(), "locked") {
		t.Fatal("the neighbour did not try")
	}
	if got, err := exec.Command("cat", path).Output(); err != nil || string(got) != "one" {
		t.Errorf("a reader gets %q, %v", got, err)
	}
	if _, err := f.Write(t.Context(), guardStamp(2), strings.NewReader("two")); err != nil {
		t.Errorf("while a reader says %q: %v", lines.Text(), err)
	}
}

// TestGuardGroupMembersMakeASidecarAtOnce: the second member finds the sidecar
// without its permissions for a moment.
func TestGuardGroupMembersMakeASidecarAtOnce(t *testing.T) {
	needRoot(t)
	dir := guardOpenDir(t, 0o775|fs.ModeSetgid)
	guardMust(t, os.Chown(dir, 0, 5000))
	path := filepath.Join(dir, "artifact")
	var children []*guardChild
	umask := 0o002
	for user := 1001; user < 1005; user++ {
		children = append(children, guardStart(t, guardOrder{
			Path: path, Tokens: []fence.Token{fence.Token(user)}, UID: user, GIDs: []int{user, 5000}, Umask: &umask,
		}))
	}
	admitted := 0
	for _, child := range children {
		for _, a := range child.answers(t) {
			if a.Error == "" {
				admitted++
			} else if !a.Stale {
				t.Error(a.Error)
			}
		}
	}
	if admitted == 0 {
		t.Error("nobody was admitted")
	}
}
