package dir

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/tenure"
)

// modes lists all permissions in a directory, each with one path that has it.
func modes(tb testing.TB, root string) (folders, files map[fs.FileMode]string) {
	tb.Helper()
	folders, files = map[fs.FileMode]string{}, map[fs.FileMode]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if d.IsDir() {
			folders[info.Mode()] = path
		} else {
			files[info.Mode()] = path
		}
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	return folders, files
}

// TestPermissions: a directory that the store makes is its user's alone. In a
// directory that was set up for sharing, everything gets the directory's
// permissions, whatever the umask says.
//
// Not parallel: the umask belongs to the process.
func TestPermissions(t *testing.T) {
	for _, umask := range []int{0, 0o022, 0o077} {
		for _, c := range []struct{ root, folder, file fs.FileMode }{
			{0, 0o700, 0o600}, // made by the store
			{0o700, 0o700, 0o600},
			{0o770, 0o770, 0o660},
			{0o770 | fs.ModeSetgid, 0o770 | fs.ModeSetgid, 0o660},
			{0o755, 0o755, 0o644},
			{0o777 | fs.ModeSticky, 0o777, 0o666},
		} {
			root := filepath.Join(testenv.Memory(t), "store")
			if c.root != 0 {
				if err := os.Mkdir(root, 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.Chmod(root, c.root); err != nil {
					t.Fatal(err)
				}
			}
			before := syscall.Umask(umask)
			use(t, root)
			syscall.Umask(before)
			folders, files := modes(t, root)
			delete(folders, c.root|fs.ModeDir) // the directory itself stays as it is
			delete(folders, c.folder|fs.ModeDir)
			delete(files, c.file)
			if len(folders)+len(files) > 0 {
				t.Errorf("umask %03o, directory %v: want %v and %v, there are also %v and %v", umask, c.root, c.folder, c.file, folders, files)
			}
		}
	}
}

// use makes a store do everything that makes files.
func use(tb testing.TB, root string) {
	tb.Helper()
	st := open(tb, root, nil)
	defer st.Close()
	held := acquire("k", "ann")
	for _, a := range st.Apply(tb.Context(), []tenure.Request{
		held, then(tenure.Renew, held), then(tenure.Release, held), acquire("k", "bob"),
		acquire("other", "ann"), takeover("other"),
	}) {
		if a.Err != nil {
			tb.Fatal(a.Err)
		}
	}
	if _, err := st.Sweep(tb.Context()); err != nil {
		tb.Fatal(err)
	}
}

// TestUsersShareADirectory: two users of one group work on each other's keys,
// in a directory set up as the package comment says.
func TestUsersShareADirectory(t *testing.T) {
	testenv.NeedRoot(t)
	const group = 64201
	shared := testenv.OpenDir(t)
	root := filepath.Join(shared, "store")
	if err := os.Mkdir(root, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(root, -1, group); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(root, 0o770|fs.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	program := testenv.CopyOfSelf(t, filepath.Join(shared, "program"))
	as := func(uid uint32, groups ...uint32) []string {
		c := startChild(t, program, "term", root, func(cmd *exec.Cmd) {
			cmd.Dir = "/"
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid, Groups: groups}}
		})
		return hear(c)
	}
	before := syscall.Umask(0o077)
	defer syscall.Umask(before)
	for round := range 3 {
		for _, uid := range []uint32{64202, 64203} {
			if words := as(uid, group); len(words) != 2 || words[1] != "<nil>" {
				t.Fatalf("round %d: user %d says %v", round, uid, words)
			}
		}
	}
}

// TestADirectoryOfAnothersIsRefused: the error says which permission is
// missing.
func TestADirectoryOfAnothersIsRefused(t *testing.T) {
	testenv.NeedRoot(t)
	base := testenv.OpenDir(t)
	root := filepath.Join(base, "store")
	use(t, root) // root's own
	program := testenv.CopyOfSelf(t, filepath.Join(base, "program"))
	for what, path := range map[string]string{"unreadable": root, "unwritable": filepath.Join(base, "new")} {
		cmd := exec.Command(program, "-test.run=^TestStoreChild$")
		cmd.Dir = "/"
		cmd.Env = append(os.Environ(), childEnv+"=term:"+path)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 64202, Gid: 64202}}
		out, err := cmd.Output()
		if err != nil || !contains(string(out), "child: error store "+path, "permission denied", "this user may not") {
			t.Errorf("%s: %v: %s", what, err, out)
		}
	}
}
