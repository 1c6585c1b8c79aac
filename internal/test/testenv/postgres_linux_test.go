package testenv

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// When a test binary has ended, no folder and no shared memory may be left. A
// server may then be running, stopped, or killed and never restarted. The
// system has only a few thousand pieces of shared memory. When they are used
// up, no server starts.
func TestNothingIsLeftOfPostgres(t *testing.T) {
	const starts = "CROFT_TEST_STARTS_POSTGRES"
	if os.Getenv(starts) != "" {
		for n, s := range []*PostgresServer{Postgres(t), NewPostgres(t), NewPostgres(t)} {
			Say(s.dir)
			Say(shared(t, s))
			if n == 2 {
				s.Kill(t)
			}
		}
		return
	}
	Postgres(t) // skips the test if there is none
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), starts+"=yes")
	child := StartChild(t, cmd)
	left := map[string]string{}
	for dir := child.Hear(); dir != ""; dir = child.Hear() {
		left[dir] = child.Hear()
	}
	if len(left) != 3 {
		t.Fatalf("of three servers these were started: %v", left)
	}
	for dir, id := range left {
		Eventually(t, "nothing is left", func() error {
			if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
				return errors.New(dir + " is")
			}
			segments, err := os.ReadFile("/proc/sysvipc/shm")
			if err == nil && regexp.MustCompile(`(?m)^\s*\S+\s+`+id+`\s`).Match(segments) {
				err = errors.New("shared memory " + id + " is")
			}
			return err
		})
	}
}

// shared returns the id of a server's shared memory, as the server writes it
// into its folder.
func shared(t *testing.T, s *PostgresServer) string {
	text, err := os.ReadFile(filepath.Join(s.dir, "data", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	if len(lines) < 7 || len(strings.Fields(lines[6])) != 2 {
		t.Fatalf("the server says of itself: %q", lines)
	}
	return strings.Fields(lines[6])[1]
}
