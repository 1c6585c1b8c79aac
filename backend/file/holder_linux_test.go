package file_test

import (
	"path/filepath"
	"testing"

	"github.com/croft-dev/croft/backend/dir"
	"github.com/croft-dev/croft/internal/test/operator"
)

// TestAHolderLearnsOfATakeoverAtOnce: and not only by its next renewal.
func TestAHolderLearnsOfATakeoverAtOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store")
	open := func() *dir.Store {
		st, err := dir.Open(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = st.Close() })
		return st
	}
	operator.TakesOverAtOnce(t, open(), open())
}
