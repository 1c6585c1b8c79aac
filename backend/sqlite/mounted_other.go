//go:build !linux

package sqlite

// mountedAlone is for systems where a single file can be mounted.
func mountedAlone(string, string) bool { return false }
