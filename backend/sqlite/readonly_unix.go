//go:build unix

package sqlite

import (
	"errors"

	"golang.org/x/sys/unix"
)

// onReadOnlyMount reports whether nobody can write to a file here. It does not
// open the file, because closing it would drop all locks that this process has
// on it.
func onReadOnlyMount(file string) bool {
	return errors.Is(unix.Access(file, unix.W_OK), unix.EROFS)
}
