package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// replaceFile puts a new file in the place of path, so that readers never see
// half of one. Everybody may read it.
//
// Permissions are given on the handle. Another user may write to the folder,
// and may have put a link in the place of the new file.
func replaceFile(path string, write func(io.Writer) error) error {
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
