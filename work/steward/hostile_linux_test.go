package steward

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestADeadOrphanThatNobodyReapsHoldsNothingUp: in a container the program may
// be process 1. Then all orphans become its children, and it does not expect
// them. In this test they become children of the test program.
func TestADeadOrphanThatNobodyReapsHoldsNothingUp(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) }()
	begun := time.Now()
	if err := (Command{Args: []string{"sh", "-c", "sleep 1000 & exit 0"}}).Deliver(t.Context(), effect(1)); err != nil {
		t.Errorf("a command that left something behind, after %s: %v", time.Since(begun), err)
	}
}
