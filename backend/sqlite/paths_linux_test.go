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

// TestOneFileByTwoPathsIsOneStore opens one file by two paths, in one process
// and in two. Closing one handle must not drop the locks of the other. A hard
// link that is made while the file is open is refused.
func TestOneFileByTwoPathsIsOneStore(t *testing.T) {
	t.Parallel()
	dir := memoryDir(t)
	must(t, os.Mkdir(filepath.Join(dir, "real"), 0o700))
	file, link := filepath.Join(dir, "real", "croft.db"), filepath.Join(dir, "link.db")
	st := newHangingAt(t, file)
	defer st.Close()
	must(t, os.Symlink("real/croft.db", link))

	// While one transaction runs, other handles of this process are opened and
	// closed by the other path.
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
	must(t, one(st, acquire("j", "ann")).Err) // a store that has it open by its one name goes on
	must(t, os.Remove(filepath.Join(dir, "hard.db")))
	must(t, open(t, link, nil).Close())
	if beside, err := filepath.Glob(filepath.Join(dir, "*-wal")); err != nil || len(beside) > 0 {
		t.Errorf("there are logs beside a link: %v, %v", beside, err)
	}
	inOrder(t, file)
}

// TestAFileMountedByItselfIsRefused checks bind mounts of a single file: each
// mount would have a log of its own.
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

// TestAFileIsNotOpenedWhileItIsMade checks that opening waits for the maker.
// The maker closes a descriptor of the file, and that drops all locks that this
// process has on it.
func TestAFileIsNotOpenedWhileItIsMade(t *testing.T) {
	file := filepath.Join(memoryDir(t), "croft.db")
	making.Lock()
	must(t, os.WriteFile(file, nil, 0o600)) // like a maker that has not closed it yet
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
	// The process has one shared lock on the file for all its open connections.
	if pids := findLocks(file, "READ", sharedByte, sharedByte); len(pids) != 1 || pids[0] != os.Getpid() {
		t.Errorf("the file is open, and locked by %v", pids)
	}
	must(t, st.Close())
}

// sharedByte is the first byte that an open connection has locked in a database
// with a log.
const sharedByte = 0x40000002
