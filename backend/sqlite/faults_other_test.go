//go:build unix && !linux

package sqlite

import "testing"

// failing is for systems where a disk can be made to fail for one process.
func failing(t *testing.T, _, _ string) { t.Fatal("no disk can be made to fail here") }
