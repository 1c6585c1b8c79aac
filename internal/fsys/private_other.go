//go:build !unix

package fsys

// Private reports whether only this user can change a file or folder.
// Permissions do not tell that here, so it is never so.
func Private(string) bool { return false }
