//go:build unix && !linux

package sqlite

import "testing"

// failing needs a system where a disk can fail for one process.
func failing(t *testing.T, _, _ string) { t.Fatal("no disk can be made to fail here") }
