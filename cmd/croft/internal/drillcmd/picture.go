package drillcmd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/internal/drill"
)

// pictureFile is the file of drill --svg. Until save renames it, the picture is
// in a temporary file beside it, so the old picture stays if anything fails.
type pictureFile struct {
	path string
	tmp  *os.File // nil if the picture goes to standard output
}

// newPictureFile makes the temporary file, so that a bad path is an error
// before the drill begins.
func newPictureFile(path string, json bool) (*pictureFile, error) {
	switch {
	case path == "":
		return nil, cli.Invalid("--svg: it is empty; name a file for the picture, or - for standard output")
	case path == "-" && json:
		return nil, cli.Invalid("--svg -: standard output is for --json; name a file for the picture")
	case path == "-":
		return &pictureFile{path: path}, nil
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, cli.Invalid("--svg %q: it is no regular file", path)
	}
	// Unlike CreateTemp, this lets the umask decide who may read the picture.
	name := filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s-%d", filepath.Base(path), os.Getpid()))
	tmp, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, cli.Invalid("--svg: %v; name a file in a directory that can be written", err)
	}
	return &pictureFile{path: path, tmp: tmp}, nil
}

func (f *pictureFile) onStdout() bool { return f != nil && f.tmp == nil }

// savePicture draws the picture and puts it in its place.
func (a *app) savePicture(f *pictureFile, r *drill.Report) error {
	picture := pausePicture(r)
	if picture == nil {
		return errors.New("there is no picture: the store did not tell who held the key of the scene pause")
	}
	if f.onStdout() {
		_, err := a.Stdout.Write(picture)
		return err
	}
	_, err := f.tmp.Write(picture)
	if err = errors.Join(err, f.tmp.Close()); err == nil {
		err = os.Rename(f.tmp.Name(), f.path)
	}
	if err != nil {
		return fmt.Errorf("the picture could not be written: %w", err)
	}
	if !a.JSON {
		fmt.Fprintf(a.Stderr, "croft: the picture is in %s\n", cli.Word(f.path))
	}
	return nil
}

// remove removes the temporary file, if it is still there.
func (f *pictureFile) remove() {
	if f.tmp != nil {
		_ = f.tmp.Close()
		_ = os.Remove(f.tmp.Name())
	}
}
