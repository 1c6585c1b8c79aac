package dir

import (
	"errors"
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

func contains(text string, all ...string) bool {
	for _, part := range all {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

// TestAFullDiskLosesNothing: on a real full disk, every request that needs
// space is answered with unknown and with advice. Every record stays readable.
// Once some space is free, everything goes on as before.
func TestAFullDiskLosesNothing(t *testing.T) {
	for what, options := range map[string]string{"bytes": "size=256k", "inodes": "size=1m,nr_inodes=64"} {
		t.Run(what, func(t *testing.T) {
			disk := testenv.SmallDisk(t, options)
			st := open(t, filepath.Join(disk, "store"), nil)
			defer st.Close()
			held := acquire("held", "ann")
			if a := one(st, held); a.Err != nil {
				t.Fatal(a.Err)
			}
			empty := testenv.Fill(t, disk)
			before, err := st.Get(t.Context(), "held")
			if err != nil {
				t.Fatalf("reading on a full disk: %v", err)
			}
			for _, req := range []tenure.Request{then(tenure.Renew, held), then(tenure.Report, held), then(tenure.Release, held), acquire("new", "bob")} {
				a := one(st, req)
				if !errors.Is(a.Err, store.ErrUnknown) || !errors.Is(a.Err, syscall.ENOSPC) || !contains(a.Err.Error(), "free some space", disk) {
					t.Errorf("%s on a full disk: %v", req.Verb, a.Err)
				}
			}
			if now, err := st.Get(t.Context(), "held"); err != nil || !same(now, before) {
				t.Errorf("the record has become %+v, %v", now, err)
			}
			if a := one(st, acquire("held", "bob")); !errors.Is(a.Err, tenure.ErrHeld) {
				t.Errorf("on a full disk a held key is refused with %v", a.Err)
			}
			findings, err := st.Examine(t.Context())
			if err != nil || level(findings, "free space") != store.Bad || level(findings, "write") != store.Bad {
				t.Errorf("the doctor finds %+v, %v", findings, err)
			}
			late := open(t, filepath.Join(disk, "store"), nil)
			defer late.Close()
			if now, err := late.Get(t.Context(), "held"); err != nil || !same(now, before) {
				t.Errorf("opened on a full disk, it reads %+v, %v", now, err)
			}
			if a := one(late, acquire("late", "bob")); !errors.Is(a.Err, syscall.ENOSPC) {
				t.Errorf("opened on a full disk, it answers %v", a.Err)
			}
			empty()
			for _, req := range []tenure.Request{then(tenure.Renew, held), then(tenure.Release, held), acquire("new", "bob")} {
				if a := one(st, req); a.Err != nil {
					t.Errorf("%s with space freed: %v", req.Verb, a.Err)
				}
			}
			if a := one(late, acquire("late", "bob")); a.Err != nil {
				t.Errorf("opened on a full disk, with space freed it answers %v", a.Err)
			}
		})
	}
}

// TestAReadOnlyMountCanBeRead: reading needs no write access. Requests say that
// the mount is read-only, and the doctor calls it unfit.
func TestAReadOnlyMountCanBeRead(t *testing.T) {
	disk := testenv.SmallDisk(t, "size=1m")
	root := filepath.Join(disk, "store")
	writer := open(t, root, nil)
	held := acquire("held", "ann")
	if a := one(writer, held); a.Err != nil {
		t.Fatal(a.Err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", disk, "", unix.MS_REMOUNT|unix.MS_RDONLY, "size=1m"); err != nil {
		t.Fatal(err)
	}
	st := open(t, root, nil)
	defer st.Close()
	if rec, err := st.Get(t.Context(), "held"); err != nil || rec.Owner != "ann" {
		t.Errorf("it reads %+v, %v", rec, err)
	}
	for rec, err := range st.List(t.Context(), "") {
		if err != nil || rec.Key != "held" {
			t.Errorf("it lists %+v, %v", rec, err)
		}
	}
	if _, err := st.Now(t.Context()); err != nil {
		t.Errorf("the time: %v", err)
	}
	for _, req := range []tenure.Request{held, acquire("held", "bob"), then(tenure.Renew, held), acquire("new", "bob")} {
		if a := one(st, req); !errors.Is(a.Err, store.ErrUnknown) || !errors.Is(a.Err, syscall.EROFS) {
			t.Errorf("%s of %s by %s: %v", req.Verb, req.Key, req.Owner, a.Err)
		}
	}
	findings, err := st.Examine(t.Context())
	if err != nil || level(findings, "write") != store.Bad {
		t.Errorf("the doctor finds %+v, %v", findings, err)
	}
}

func level(findings []store.Finding, check string) store.Level {
	for _, f := range findings {
		if f.Check == check {
			return f.Level
		}
	}
	return ""
}

// TestAnUnmountedStoreIsNotEmpty: a real mount is taken away while the store is
// open.
func TestAnUnmountedStoreIsNotEmpty(t *testing.T) {
	disk := testenv.SmallDisk(t, "size=1m")
	below := t.TempDir()
	root := filepath.Join(below, "mount")
	if err := os.Mkdir(root, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(disk, root, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	st := open(t, root, nil)
	defer st.Close()
	held := acquire("k", "ann")
	if a := one(st, held); a.Err != nil {
		t.Fatal(a.Err)
	}
	if err := unix.Unmount(root, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	for _, req := range []tenure.Request{acquire("k", "bob"), then(tenure.Renew, held), then(tenure.Release, held), acquire("new", "bob")} {
		if a := one(st, req); !errors.Is(a.Err, store.ErrUnknown) || !strings.Contains(a.Err.Error(), "unmounted") {
			t.Errorf("%s of an unmounted store: %v", req.Verb, a.Err)
		}
	}
	if names, err := os.ReadDir(root); err != nil || len(names) > 0 {
		t.Errorf("something was written below the mount: %v, %v", names, err)
	}
	use(t, root) // another store, in which the keys have other holders
	for _, req := range []tenure.Request{acquire("k", "bob"), then(tenure.Renew, held)} {
		if a := one(st, req); !errors.Is(a.Err, store.ErrUnknown) || !strings.Contains(a.Err.Error(), "unmounted") {
			t.Errorf("%s with another store below the mount: %v", req.Verb, a.Err)
		}
	}
	if err := unix.Mount(disk, root, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(root, unix.MNT_DETACH) //nolint:errcheck // the folder goes with the test
	if a := one(st, then(tenure.Renew, held)); a.Err != nil {
		t.Errorf("mounted again: %v", a.Err)
	}
}
