package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// TestOneFileByTwoPathsIsOneStore: in one process and between processes. A handle that was opened by another path and is closed takes no lock of the first one with it, and a hard link
// that comes while the file is open is refused.
func TestOneFileByTwoPathsIsOneStore(t *testing.T) {
	t.Parallel()
	dir := memoryDir(t)
	must(t, os.Mkdir(filepath.Join(dir, "real"), 0o700))
	file, link := filepath.Join(dir, "real", "croft.db"), filepath.Join(dir, "link.db")
	st := newHangingAt(t, file)
	defer st.Close()
	must(t, os.Symlink("real/croft.db", link))

	// In the middle of a transaction, others of this process come and go by the other path.
	st.hang.Store(true)
	resume := sync.OnceFunc(func() { close(st.resume) })
	defer resume()
	answer := make(chan error, 1)
	mine := acquire("k", "ann")
	go func() { answer <- one(st, mine).Err }()
	<-st.inside
	for range 3 {
		other := open(t, link, nil)
		if _, err := other.Get(t.Context(), "k"); err != nil {
			t.Error(err)
		}
		must(t, other.Close())
	}
	// Another process is still kept out.
	c := startChild(t, "take", link)
	c.Expect(t, "ready")
	fmt.Fprintln(c.In, "try")
	if heard := c.Hear(); !strings.Contains(heard, "the database is locked") {
		t.Errorf("a child that came by the other path says %q in the middle of a transaction", heard)
	}
	resume()
	must(t, <-answer)
	fmt.Fprintln(c.In, "go")
	if heard := c.Hear(); !strings.Contains(heard, "held by") {
		t.Errorf("a child that came by the other path says %q of a key that is held", heard)
	}
	must(t, one(st, then(tenure.Release, mine)).Err)
	fmt.Fprintln(c.In, "go")
	c.Expect(t, "answer <nil>")
	if a := one(st, acquire("k", "ann")); !errors.Is(a.Err, tenure.ErrHeld) {
		t.Errorf("the child holds it, and it is %v here", a.Err)
	}

	must(t, os.Link(file, filepath.Join(dir, "hard.db")))
	for _, path := range []string{filepath.Join(dir, "hard.db"), file, link} {
		if _, err := Open(t.Context(), path, nil); !errors.Is(err, fence.ErrInvalid) || !strings.Contains(err.Error(), "hard links") {
			t.Errorf("%s, of a file with two names: %v", path, err)
		}
	}
	must(t, one(st, acquire("j", "ann")).Err) // who has it open by its one name goes on
	must(t, os.Remove(filepath.Join(dir, "hard.db")))
	must(t, open(t, link, nil).Close())
	if beside, err := filepath.Glob(filepath.Join(dir, "*-wal")); err != nil || len(beside) > 0 {
		t.Errorf("there are logs beside a link: %v, %v", beside, err)
	}
	inOrder(t, file)
}

// TestAFileMountedByItselfIsRefused: its log would be another in every place where it is mounted.
func TestAFileMountedByItselfIsRefused(t *testing.T) {
	dir := memoryDir(t)
	file, mounted := filepath.Join(dir, "croft.db"), filepath.Join(dir, "mounted.db")
	open(t, file, nil).Close()
	must(t, os.WriteFile(mounted, nil, 0o600))
	if err := unix.Mount(file, mounted, "", unix.MS_BIND, ""); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("mounting a file: %v; CI must run this test", err)
		}
		t.Skipf("NOT TESTED: mounting a file: %v", err)
	}
	defer func() {
		if err := unix.Unmount(mounted, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	if _, err := Open(t.Context(), mounted, nil); !errors.Is(err, fence.ErrInvalid) || !strings.Contains(err.Error(), "mount the folder") {
		t.Errorf("a file that is a mount of its own: %v", err)
	}
	folder := filepath.Join(memoryDir(t), "folder")
	must(t, os.Mkdir(folder, 0o700))
	must(t, unix.Mount(dir, folder, "", unix.MS_BIND, ""))
	defer func() {
		if err := unix.Unmount(folder, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	st, other := open(t, file, nil), open(t, filepath.Join(folder, "croft.db"), nil)
	defer st.Close()
	defer other.Close()
	must(t, one(st, acquire("k", "ann")).Err)
	if a := one(other, acquire("k", "bob")); !errors.Is(a.Err, tenure.ErrHeld) {
		t.Errorf("the same file through a folder that is mounted twice: %v", a.Err)
	}
}

// TestAFileIsNotOpenedWhileItIsMade: whoever makes it closes a descriptor of it, and with that would go all the locks that others of the process have on it by then.
func TestAFileIsNotOpenedWhileItIsMade(t *testing.T) {
	file := filepath.Join(memoryDir(t), "croft.db")
	making.Lock()
	must(t, os.WriteFile(file, nil, 0o600)) // as somebody does who has not closed it yet
	opened := make(chan *Store, 1)
	go func() {
		st, err := Open(context.Background(), file, nil)
		if err != nil {
			t.Error(err)
		}
		opened <- st
	}()
	select {
	case <-opened:
		t.Error("it was opened before it was made")
	case <-time.After(100 * time.Millisecond):
	}
	making.Unlock()
	st := <-opened
	if st == nil {
		t.FailNow()
	}
	// Every open connection has a shared lock on the file, one for the whole process.
	if pids := findLocks(file, "READ", sharedByte, sharedByte); len(pids) != 1 || pids[0] != os.Getpid() {
		t.Errorf("the file is open, and locked by %v", pids)
	}
	must(t, st.Close())
}

// sharedByte is the first of those that an open connection to a database with a log has locked.
const sharedByte = 0x40000002
