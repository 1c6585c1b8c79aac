//go:build unix

package main

import (
	"context"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// flockRivals are locks of the kernel: gone with their process, without an owner's name, a deadline or a token, and nothing of them is on the disk.
func flockRivals(dir string) []rival {
	t := func(_ context.Context, key string) (func(context.Context) error, error) {
		f, err := os.OpenFile(filepath.Join(dir, key+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, err
		}
		for {
			if err = unix.Flock(int(f.Fd()), unix.LOCK_EX); err != unix.EINTR { //nolint:errorlint // a number of the kernel's
				break
			}
		}
		if err != nil {
			_ = f.Close()
			return nil, err
		}
		return func(context.Context) error { return f.Close() }, nil
	}
	return []rival{{"flock, for scale", func(context.Context, int) (*opened, error) {
		return &opened{takes: []take{t}, meter: &meter{}, close: func() {}}, nil
	}}}
}
