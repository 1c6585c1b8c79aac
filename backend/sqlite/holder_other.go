//go:build !linux

package sqlite

// lockHolder knows nothing on this system. It would have to open the file, and
// closing it again would drop all locks that this process has on it.
func lockHolder(string) (process, bool) { return process{}, false }

// logReaders knows nothing on this system, for the same reason.
func logReaders(string) []process { return nil }
