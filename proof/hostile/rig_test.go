package hostile

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/croft-dev/croft/internal/test/testenv"
)

// scratch is a folder that every user can enter.
var scratch string

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "croft-hostile-"); err == nil {
		err = os.Chmod(scratch, 0o755)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(scratch)
	os.Exit(code)
}

// built returns the command under attack, built like a release.
func built(t *testing.T) string {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var build = sync.OnceValues(func() (string, error) {
	path := filepath.Join(scratch, "croft")
	return path, testenv.BuildCroft(path)
})
