//go:build !unix

package sqlite

import "io/fs"

// links cannot count on this system, and returns 1.
func links(fs.FileInfo) uint64 { return 1 }
