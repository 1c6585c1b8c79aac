package dir

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/croft-dev/croft/fence"
)

// TestASidecarIsNoTargetInAnyCase: where file names have no case, OUT.FENCE is
// the sidecar of out, and a guarded write to it would replace the mark.
func TestASidecarIsNoTargetInAnyCase(t *testing.T) {
	for _, name := range []string{"out.fence", "OUT.FENCE", "out.Fence"} {
		if _, err := OpenFile(filepath.Join(t.TempDir(), name), nil); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("%s: %v, want invalid", name, err)
		}
	}
}
