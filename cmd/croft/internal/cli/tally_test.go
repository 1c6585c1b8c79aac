package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestACommandCannotFillTheTally: the command may write to the file of counted
// writes, and decides how long it is.
func TestACommandCannotFillTheTally(t *testing.T) {
	lease := filepath.Join(t.TempDir(), "lease")
	counted := &Tally{}
	if err := counted.Begin(lease); err != nil {
		t.Fatal(err)
	}
	defer counted.End()
	const size = 3 * tallyPart
	if err := os.WriteFile(lease+tallySuffix, bytes.Repeat([]byte("x"), size), 0o600); err != nil {
		t.Fatal(err)
	}
	counted.count()
	if counted.read != size { // otherwise it would be read again at every count
		t.Errorf("%d of %d bytes were passed over", counted.read, size)
	}
}
