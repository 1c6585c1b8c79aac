//go:build linux || darwin

package file

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/test/testenv"
)

// guardModes returns "mode uid:gid" of a file.
func guardModes(t *testing.T, path string) string {
	t.Helper()
	info, err := os.Lstat(path)
	guardMust(t, err)
	st := info.Sys().(*syscall.Stat_t)
	return fmt.Sprintf("%v %d:%d", info.Mode(), st.Uid, st.Gid)
}

// guardAlike checks the artifact's permissions. It also checks that the sidecar
// has the same owner, and that only writers of the artifact can open it.
func guardAlike(t *testing.T, path string, perm fs.FileMode, owner string) {
	t.Helper()
	sidecar := fs.FileMode(0o600)
	if perm&0o020 != 0 {
		sidecar |= 0o060
	}
	if perm&0o002 != 0 {
		sidecar |= 0o006
	}
	for name, mode := range map[string]fs.FileMode{path: perm, path + guardSuffix: sidecar} {
		if got, want := guardModes(t, name), mode.String()+" "+owner; got != want {
			t.Errorf("%s is %s, want %s", filepath.Base(name), got, want)
		}
	}
}

// guardOpenDir makes a directory that other users can enter.
func guardOpenDir(t *testing.T, mode fs.FileMode) string {
	t.Helper()
	dir := guardTemp(t)
	guardMust(t, os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, mode))
	return dir
}

// guardAs makes one write as another user and returns the error's text.
func guardAs(t *testing.T, path string, token fence.Token, uid int, gids ...int) string {
	t.Helper()
	umask := 0o002
	a := guardStart(t, guardOrder{Path: path, Tokens: []fence.Token{token}, UID: uid, GIDs: gids, Umask: &umask}).answers(t)
	if len(a) != 1 {
		t.Fatalf("answers: %+v", a)
	}
	return a[0].Error
}

func TestGuardNewFileGetsWhatTheUmaskGives(t *testing.T) {
	t.Parallel()
	for _, umask := range []int{0o022, 0o077, 0o002, 0o027, 0} {
		path := filepath.Join(guardTemp(t), "artifact")
		a := guardStart(t, guardOrder{Path: path, Tokens: []fence.Token{1, 2}, Umask: &umask}).answers(t)
		if len(a) != 2 || a[0].Error != "" || a[1].Error != "" {
			t.Fatalf("%+v", a)
		}
		guardAlike(t, path, 0o666&^fs.FileMode(umask), fmt.Sprintf("%d:%d", os.Geteuid(), os.Getegid()))
	}
}

func TestGuardKeepsTheModeAndTheSidecarFollows(t *testing.T) {
	path := filepath.Join(guardTemp(t), "artifact")
	guardMust(t, os.WriteFile(path, []byte("old"), 0o600))
	f := guardOpen(t, path)
	me := fmt.Sprintf("%d:%d", os.Geteuid(), os.Getegid())
	for i, mode := range []fs.FileMode{0o604, 0o640, 0o777, 0o600} {
		guardMust(t, os.Chmod(path, mode))
		guardPut(t, f, fence.Token(i+1), "new")
		guardAlike(t, path, mode, me)
	}
	// New content does not get the set-user-id bit of the old.
	guardMust(t, os.Chmod(path, 0o755|fs.ModeSetuid))
	guardPut(t, f, 9, "new")
	guardAlike(t, path, 0o755, me)
	// The mode may change while the content is being read.
	changed := false
	if _, err := f.Write(t.Context(), guardStamp(10), guardReader(func(p []byte) (int, error) {
		if changed {
			return 0, io.EOF
		}
		changed = true
		return copy(p, "x"), os.Chmod(path, 0o604)
	})); err != nil {
		t.Fatal(err)
	}
	guardAlike(t, path, 0o604, me)
}

func TestGuardKeepsOwnerAndGroupWhenRootWrites(t *testing.T) {
	testenv.NeedRoot(t)
	path := filepath.Join(guardTemp(t), "artifact")
	guardMust(t, os.WriteFile(path, []byte("old"), 0o600), os.Chown(path, 1234, 4321), os.Chmod(path, 0o640))
	f := guardOpen(t, path)
	for token := range fence.Token(3) {
		guardPut(t, f, token+1, "new")
		guardAlike(t, path, 0o640, "1234:4321")
	}
	guardMust(t, os.Chown(path, 1235, 4322))
	guardPut(t, f, 9, "new")
	guardAlike(t, path, 0o640, "1235:4322")
}

func TestGuardIsSharedByAGroup(t *testing.T) {
	testenv.NeedRoot(t)
	t.Parallel()
	dir := guardOpenDir(t, 0o775|fs.ModeSetgid)
	guardMust(t, os.Chown(dir, 0, 5000))
	path := filepath.Join(dir, "artifact")
	for i, user := range []int{1001, 1002, 1001, 1003} {
		if err := guardAs(t, path, fence.Token(i+1), user, user, 5000); err != "" {
			t.Errorf("user %d: %s", user, err)
		}
		if got := guardModes(t, path); got != fmt.Sprintf("-rw-rw-r-- %d:5000", user) {
			t.Errorf("after user %d it is %s", user, got)
		}
		if got := guardModes(t, path+guardSuffix); got != "-rw-rw---- 1001:5000" {
			t.Errorf("after user %d the sidecar is %s", user, got)
		}
	}
	guardHas(t, guardOpen(t, path), 4, "4")
	if err := guardAs(t, path, 9, 1004, 1004); !strings.Contains(err, "permission denied") || !strings.Contains(err, "write-protected") {
		t.Errorf("a user outside the group: %q", err)
	}
	guardHas(t, guardOpen(t, path), 4, "4")
}

func TestGuardRefusesWhatItsUserMayNotReplace(t *testing.T) {
	testenv.NeedRoot(t)
	const user = 1001
	lay := func(t *testing.T, uid, gid int, mode, dirMode fs.FileMode) string {
		dir := guardOpenDir(t, 0o755)
		path := filepath.Join(dir, "artifact")
		guardMust(t, os.WriteFile(path, []byte("old"), 0o600), os.Chown(path, uid, gid), os.Chmod(path, mode), os.Chmod(dir, dirMode))
		return path
	}
	for name, c := range map[string]struct {
		uid, gid      int
		mode, dirMode fs.FileMode
		why           string
	}{
		"one's own, write-protected":    {user, user, 0o444, 0o777, "give it write permission"},
		"another's":                     {1002, 1002, 0o644, 0o777, "give it write permission"},
		"in a directory not one's own":  {user, user, 0o644, 0o755, "directory must be writable"},
		"of a group one does not share": {user, 4321, 0o660, 0o777, "join that group"},
	} {
		t.Run(name, func(t *testing.T) {
			path := lay(t, c.uid, c.gid, c.mode, c.dirMode)
			if err := guardAs(t, path, 1, user, user); !strings.Contains(err, c.why) {
				t.Errorf("%q, want it to say %q", err, c.why)
			}
			names, err := os.ReadDir(filepath.Dir(path))
			if content, _ := os.ReadFile(path); err != nil || len(names) != 1 || string(content) != "old" {
				t.Errorf("it left %v and the content %q", names, content)
			}
		})
	}
	t.Run("its sidecar is another's", func(t *testing.T) {
		path := lay(t, 1002, 1002, 0o666, 0o777)
		guardMust(t, os.WriteFile(path+guardSuffix, slotBirth, 0o600))
		if err := guardAs(t, path, 1, user, user); !strings.Contains(err, path+guardSuffix) || !strings.Contains(err, "permissions") {
			t.Errorf("%q, want it to name the sidecar and what to do", err)
		}
	})
	t.Run("its sidecar is a link somebody planted", func(t *testing.T) {
		path := lay(t, user, user, 0o666, 0o777)
		victim := filepath.Join(filepath.Dir(path), "victim")
		guardMust(t, os.WriteFile(victim, nil, 0o600))
		before := guardModes(t, victim)
		for name, plant := range map[string]func(from, to string) error{"symbolic": os.Symlink, "hard": os.Link} {
			guardMust(t, plant(victim, path+guardSuffix))
			if _, err := guardOpen(t, path).Raise(t.Context(), guardStamp(1)); err == nil {
				t.Errorf("a %s link was followed", name)
			}
			if info, err := os.Stat(victim); err != nil || info.Size() != 0 || guardModes(t, victim) != before {
				t.Errorf("what a %s link leads to was touched: %v, %v", name, info, err)
			}
			guardMust(t, os.Remove(path+guardSuffix))
		}
	})
}
