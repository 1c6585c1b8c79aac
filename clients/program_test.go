package clients

import (
	"log"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/croft-dev/croft/internal/test/testenv"
)

// built is the folder of the program croft, which all tests share.
var built string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "croft-clients-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	built = dir
	return m.Run()
}

// environment is what tests in another language begin with: the program croft,
// and a folder for stores. The folder is in memory. Croft gives up on a store
// that does not answer within 5 s, and on a disk that is busy with the syncs of
// other tests a store may take longer.
func environment(t *testing.T) []string {
	t.Helper()
	program, err := build()
	if err != nil {
		t.Fatal(err)
	}
	examples, err := filepath.Abs(filepath.Join("..", "examples", "node"))
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"CROFT_BIN=" + program, "TMPDIR=" + testenv.Memory(t), "CROFT_TEST_EXAMPLES=" + examples}
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "CROFT_") && !strings.HasPrefix(e, "TMPDIR=") {
			env = append(env, e)
		}
	}
	return env
}

// build builds the program croft, like a release.
var build = sync.OnceValues(func() (string, error) {
	path := filepath.Join(built, "croft")
	return path, testenv.BuildCroft(path)
})
