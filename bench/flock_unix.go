//go:build unix

package main

import (
	"context"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// flockRivals are locks of the kernel. They end with their process, have no
// owner's name, deadline or token, and leave nothing on disk.
func flockRivals(dir string) []rival {
	t := func(_ context.Context, key string) (func(context.Context) error, error) {
		f, err := os.OpenFile(filepath.Join(dir, key+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, err
		}
		for {
			if err = unix.Flock(int(f.Fd()), unix.LOCK_EX); err != unix.EINTR { //nolint:errorlint // an errno
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
