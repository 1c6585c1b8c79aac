package testenv

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// SmallDisk mounts a small file system until the test ends. options are like
// "size=1m,nr_inodes=64". It ends the test with Missing if mounting is not
// allowed.
func SmallDisk(tb testing.TB, options string) string {
	tb.Helper()
	dir := tb.TempDir()
	if err := unix.Mount("croft-test", dir, "tmpfs", 0, options); err != nil {
		Missing(tb, "a small disk cannot be mounted: %v; run this test as root", err)
	}
	tb.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			tb.Error(err)
		}
	})
	return dir
}

// Fill uses up the bytes or the inodes of a disk. The function that it returns
// frees them.
func Fill(tb testing.TB, disk string) (empty func()) {
	tb.Helper()
	dir := filepath.Join(disk, "filler")
	err := os.Mkdir(dir, 0o700)
	for i := 0; err == nil; i++ {
		err = os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), make([]byte, 4096), 0o600)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		tb.Fatalf("testenv: filling %s ended with %v", disk, err)
	}
	return func() {
		tb.Helper()
		if err := os.RemoveAll(dir); err != nil {
			tb.Fatal(err)
		}
	}
}
