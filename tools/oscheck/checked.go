package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// inputs returns a hash of all that a check depends on: this program, the go
// command and its settings, and the files of the repository that are neither
// ignored nor deleted. Of files that the compiler does not read, only the names
// count, because Go code may embed them. The sums of the modules of others
// stand for their files, which do not change.
func inputs() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	settings, err := exec.Command("go", "env", "GOVERSION", "GOFLAGS", "GOEXPERIMENT", "GOWORK", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("go env: %w", err)
	}
	list, err := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		return "", fmt.Errorf("git ls-files: %w", err)
	}
	files := strings.Split(strings.TrimRight(string(list), "\x00"), "\x00")
	slices.Sort(files)
	sum := sha256.New()
	_, _ = sum.Write(settings)
	for _, name := range append(files, self) {
		content, err := read(name, name == self)
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted, and not yet committed
		}
		if err != nil {
			return "", err
		}
		_, _ = fmt.Fprintf(sum, "%q %d\n", name, len(content))
		_, _ = sum.Write(content)
	}
	return fmt.Sprintf("%x\n", sum.Sum(nil)), nil
}

// read returns the content of a file that counts, and nothing of any other.
func read(name string, always bool) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	switch {
	case always, filepath.Ext(name) == ".go":
	case slices.Contains([]string{"go.mod", "go.sum", "go.work", "go.work.sum"}, filepath.Base(name)):
	default:
		return nil, nil
	}
	return io.ReadAll(f)
}

// note is the file that keeps the inputs of the last check that passed.
func note(system string) string {
	return filepath.Join(".tools", "oscheck-"+strings.ReplaceAll(system, "/", "-"))
}

// passed reports whether the same inputs have passed before.
func passed(system, inputs string) bool {
	before, err := os.ReadFile(note(system))
	return err == nil && string(before) == inputs
}

// pass notes that a check passed. It notes nothing if a file has changed during
// the check: then the check may have read either text.
func pass(system, before string) error {
	if now, err := inputs(); err != nil || now != before {
		return err
	}
	return os.WriteFile(note(system), []byte(before), 0o644)
}
