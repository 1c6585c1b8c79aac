package sqlite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// TestAFullDiskLosesNothing fills a real disk. Requests that need space get
// unknown outcomes and advice, and every record stays readable. When space is
// free again, the store goes on.
func TestAFullDiskLosesNothing(t *testing.T) {
	disk := testenv.SmallDisk(t, "size=1m")
	file := filepath.Join(disk, "croft.db")
	st := open(t, file, nil)
	defer st.Close()
	held := acquire("held", "ann")
	if a := one(st, held); a.Err != nil {
		t.Fatal(a.Err)
	}
	before, err := st.Get(t.Context(), "held")
	must(t, err)
	empty := testenv.Fill(t, disk)
	full := 0
	for n := range 200 { // the log has some room left in its last page
		a := one(st, acquire(fmt.Sprintf("new/%d", n), "bob"))
		if a.Err == nil {
			continue
		}
		full++
		if !errors.Is(a.Err, store.ErrUnknown) || !strings.Contains(a.Err.Error(), "full") {
			t.Fatalf("on a full disk: %v", a.Err)
		}
		if full == 3 {
			break
		}
	}
	if full == 0 {
		t.Fatal("the disk was never full: the test shows nothing")
	}
	if now, err := st.Get(t.Context(), "held"); err != nil || now.Token != before.Token || !now.Deadline.Equal(before.Deadline) {
		t.Errorf("the record has become %+v, %v", now, err)
	}
	if a := one(st, acquire("held", "bob")); !errors.Is(a.Err, tenure.ErrHeld) {
		t.Errorf("on a full disk a held key is refused with %v", a.Err)
	}
	findings, err := st.Examine(t.Context())
	if err != nil || level(findings, "free space") != store.Bad {
		t.Errorf("the doctor finds %+v, %v", findings, err)
	}
	empty()
	for _, req := range []tenure.Request{then(tenure.Renew, held), then(tenure.Release, held), acquire("held", "bob")} {
		if a := one(st, req); a.Err != nil {
			t.Errorf("%s with space freed: %v", req.Verb, a.Err)
		}
	}
	inOrder(t, file)
}

// TestAReadOnlyMountIsRead: reading needs no write access. The store refuses
// requests at once, with the reason. When the mount is writable again, it goes
// on.
func TestAReadOnlyMountIsRead(t *testing.T) {
	disk := testenv.SmallDisk(t, "size=1m")
	file := filepath.Join(disk, "croft.db")
	first := open(t, file, nil)
	held := acquire("held", "ann")
	if a := one(first, held); a.Err != nil {
		t.Fatal(a.Err)
	}
	must(t, first.Close()) // leaves no log beside it
	remount := func(flags uintptr) {
		t.Helper()
		must(t, unix.Mount("croft-test", disk, "tmpfs", unix.MS_REMOUNT|flags, ""))
	}
	remount(unix.MS_RDONLY)
	st := open(t, file, nil)
	defer st.Close()
	for range 2 {
		if rec, err := st.Get(t.Context(), "held"); err != nil || rec.Owner != "ann" {
			t.Errorf("reading: %+v, %v", rec, err)
		}
		a := one(st, acquire("k", "bob"))
		if !store.IsFault(a.Err) || !strings.Contains(a.Err.Error(), "mount it writable") {
			t.Errorf("a request: %v, want a fault and what to do", a.Err)
		}
	}
	if findings, err := st.Examine(t.Context()); err != nil || level(findings, "write") != store.Bad {
		t.Errorf("the doctor finds %+v, %v", findings, err)
	}

	// Somebody writes to the file, as if through another mount.
	remount(0)
	other := open(t, file, nil)
	if a := one(other, then(tenure.Release, held)); a.Err != nil {
		t.Fatal(a.Err)
	}
	if rec, err := st.Get(t.Context(), "held"); err != nil || rec.State != tenure.Free {
		t.Errorf("after a change elsewhere: %+v, %v", rec, err)
	}
	must(t, other.Close())
	if a := one(st, acquire("k", "bob")); a.Err != nil {
		t.Errorf("on a writable mount: %v", a.Err)
	}
	inOrder(t, file)
}

// TestFilesAreTheUsersAlone checks that the database, its log and its shared
// memory are for the user alone, whatever the umask is. Files that were shared
// before stay so.
func TestFilesAreTheUsersAlone(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	for _, want := range []os.FileMode{0o600, 0o660} {
		file := filepath.Join(memoryDir(t), "croft.db")
		if want != 0o600 {
			must(t, os.WriteFile(file, nil, want))
		}
		st := open(t, file, nil)
		if a := one(st, acquire("k", "ann")); a.Err != nil {
			t.Fatal(a.Err)
		}
		for _, suffix := range []string{"", "-wal", "-shm"} {
			if info, err := os.Stat(file + suffix); err != nil || info.Mode().Perm() != want {
				t.Errorf("%s: %v, %v, want %o", "croft.db"+suffix, info.Mode(), err, want)
			}
		}
		findings, err := st.Examine(t.Context())
		if err != nil || level(findings, "permissions") != store.OK {
			t.Errorf("the doctor finds %+v, %v", findings, err)
		}
		must(t, os.Chmod(file, 0o666))
		if findings, err = st.Examine(t.Context()); err != nil || level(findings, "permissions") != store.Warn {
			t.Errorf("the doctor finds %+v, %v", findings, err)
		}
		st.Close()
	}
}
