//go:build !unix

package fsys

import "io/fs"

// Private reports whether nobody but this user can write to a file or folder.
// Permissions do not tell that here, so it is never so.
func Private(fs.FileInfo) bool { return false }
