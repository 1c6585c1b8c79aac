package file

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/croft-dev/croft/fence"
)

// TestASidecarIsNoTargetInAnyCase: on file systems that ignore case, OUT.FENCE
// is the sidecar of out. A guarded write to it would replace the mark.
func TestASidecarIsNoTargetInAnyCase(t *testing.T) {
	for _, name := range []string{"out.fence", "OUT.FENCE", "out.Fence"} {
		if _, err := Open(filepath.Join(t.TempDir(), name), nil); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("%s: %v, want invalid", name, err)
		}
	}
}

// TestAResetMakesNoSidecar: if there is no mark to take back.
func TestAResetMakesNoSidecar(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report")
	f, err := Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Reset(t.Context(), 7, "ann", "it was forged"); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("%v, want ErrInvalid", err)
	}
	if _, err := os.Lstat(path + guardSuffix); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the sidecar: %v, want none", err)
	}
}
