//go:build !unix

package sqlite

// onReadOnlyMount is not known here.
func onReadOnlyMount(string) bool { return false }
