package testenv

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestNothingIsLeftInMemory of a test binary, also if it is killed: it would
// keep the memory until the machine is restarted.
func TestNothingIsLeftInMemory(t *testing.T) {
	const fills = "CROFT_TEST_FILLS_MEMORY"
	if os.Getenv(fills) != "" {
		dir := Memory(t)
		if err := os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		Say(dir)
		select {}
	}
	if InMemory() == "" {
		t.Log("memory is short, or there is no folder in it: nothing can be left there")
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), fills+"=yes")
	child := StartChild(t, cmd)
	dir := child.Hear()
	if _, err := os.Stat(filepath.Join(dir, "file")); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	Eventually(t, "nothing is left", func() error {
		if _, err := os.Stat(filepath.Dir(dir)); !errors.Is(err, os.ErrNotExist) {
			return errors.New(dir + " is")
		}
		return nil
	})
}

// TestShortMemoryIsLeftToPrograms: the files of tests go to the disk then.
func TestShortMemoryIsLeftToPrograms(t *testing.T) {
	if dir := roomy(1 << 60); dir != "" {
		t.Errorf("%s has room for everything", dir)
	}
	if n := available(); n < 1<<20 || n > 1<<50 {
		t.Errorf("%d bytes of memory are available", n)
	}
}
