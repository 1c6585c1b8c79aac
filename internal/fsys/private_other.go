//go:build !unix

package fsys

// Private reports whether only this user can change a file or folder.
// Permissions do not tell that on this system, so it returns false.
func Private(string) bool { return false }
