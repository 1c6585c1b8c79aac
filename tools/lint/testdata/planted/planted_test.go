package planted

import (
	"os"
	"testing"
)

func TestTemporary(t *testing.T) {
	if err := os.Setenv("X", os.TempDir()); err != nil {
		t.Fatal(err)
	}
}
