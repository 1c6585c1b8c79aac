//go:build !linux

package sqlite

// mountedAlone reports false on systems other than Linux.
func mountedAlone(string, string) bool { return false }
