package file

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/fsys"
	"github.com/croft-dev/croft/internal/test/testenv"
)

// The neighbour is another user of this machine, who shares a folder with root
// and attacks it. Each attack happens at a chosen step of root's, through a
// hook. If an attack does not get to its step, the test fails.

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
				testenv.NeedRoot(t)
				mine := filepath.Join(testenv.OpenDir(t), "mine")
				folder, secret := filepath.Join(mine, "folder"), filepath.Join(mine, "secret")
				path := filepath.Join(folder, "artifact")
				guardMust(t, os.MkdirAll(folder, 0o755), os.WriteFile(path, []byte("old"), 0o644), os.Mkdir(secret, 0o700))
				for _, its := range []string{mine, folder, path} {
					guardMust(t, os.Chown(its, testenv.Neighbour, testenv.Neighbour))
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
						testenv.AsNeighbour(t, attack, folder, secret)
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
				for _, dir := range []string{secret, folder} { // the attack may have moved it
					info, err := os.Lstat(dir)
					if err != nil || !os.SameFile(info, before) {
						continue
					}
					names, err := os.ReadDir(dir)
					guardMust(t, err)
					for _, name := range names {
						t.Errorf("root's folder has %s now, which is %s", name.Name(), guardModes(t, filepath.Join(dir, name.Name())))
					}
				}
			})
		}
	}
}

func TestAPlantedSidecarIsNotTrusted(t *testing.T) {
	testenv.NeedRoot(t)
	dir := guardOpenDir(t, 0o777|fs.ModeSticky)
	path := filepath.Join(dir, "artifact")
	plant := func() {
		t.Helper()
		planted := filepath.Join(testenv.OpenDir(t), "planted")
		image := slotImageOf(slotSample(3), slotSample(4))
		guardMust(t, os.WriteFile(planted, image, 0o644))
		testenv.AsNeighbour(t, `cat "$1" > "$2"; chmod 666 "$2"`, planted, path+guardSuffix)
	}
	plant()
	f := guardOpen(t, path)
	_, write := f.Write(t.Context(), guardStamp(900), strings.NewReader("root's"))
	_, raise := f.Raise(t.Context(), guardStamp(900))
	_, mark := f.Mark(t.Context())
	for verb, err := range map[string]error{"write": write, "raise": raise, "mark": mark} {
		var refused *SidecarError
		repair := "rm '" + path + guardSuffix + "' && croft guard raise"
		if !errors.As(err, &refused) || !refused.Foreign || !strings.Contains(err.Error(), "user 64202") || !strings.Contains(err.Error(), repair) {
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
	guardMust(t, os.Chown(path, testenv.Neighbour, testenv.Neighbour))
	guardPut(t, f, 3, "three")
	guardPut(t, f, 4, "four")
	guardHas(t, f, 4, "four")
}

// TestALinkPlantedInAStickyDirectoryIsNotFollowed: a shell's redirection would
// not follow it on Linux either (fs.protected_symlinks).
func TestALinkPlantedInAStickyDirectoryIsNotFollowed(t *testing.T) {
	testenv.NeedRoot(t)
	dir, victim := guardOpenDir(t, 0o777|fs.ModeSticky), filepath.Join(t.TempDir(), "victim")
	guardMust(t, os.WriteFile(victim, []byte("root's"), 0o600))
	path := filepath.Join(dir, "artifact")
	testenv.AsNeighbour(t, `ln -s "$1" "$2"`, victim, path)
	f, err := Open(path, nil)
	if !errors.Is(err, fence.ErrInvalid) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "user 64202") {
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
	testenv.NeedRoot(t)
	dir := guardOpenDir(t, 0o755)
	path, victim := filepath.Join(dir, "artifact"), filepath.Join(dir, "victim")
	guardMust(t, os.WriteFile(path, []byte("old"), 0o644), os.Chown(path, testenv.Neighbour, testenv.Neighbour),
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
	testenv.NeedRoot(t)
	dir := guardOpenDir(t, 0o755)
	path := filepath.Join(dir, "artifact")
	guardMust(t, os.WriteFile(path, []byte("public"), 0o644), os.Chmod(path, 0o644))
	f, err := Open(path, &Options{LockWait: -1})
	guardMust(t, err)
	guardPut(t, f, 1, "one")
	cmd := exec.Command(testenv.CopyOfSelf(t, filepath.Join(testenv.OpenDir(t), "program")), "-test.run=^TestNeighbourChild$")
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "CROFT_TEST_NEIGHBOUR_LOCKS="+path+guardSuffix)
	cmd.SysProcAttr = testenv.NeighbourCredential()
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
	testenv.NeedRoot(t)
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
