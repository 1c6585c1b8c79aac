package cli

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// ReplaceFile replaces the file at path in one step, so readers never see half
// of it. Everybody may read it.
//
// It sets permissions on the open file, not by name. Another user may write to
// the folder, and may have put a link in the place of the new file.
func ReplaceFile(path string, write func(io.Writer) error) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return err
	}
	err = errors.Join(write(tmp), tmp.Chmod(0o644), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
	}
	return err
}
