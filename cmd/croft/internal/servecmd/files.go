package servecmd

import (
	"context"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/croft-dev/croft/backend/file"
	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/server"
)

// uploadsFolder is where the server keeps content that comes in parts: on the
// disk of the files, under a name that clients cannot use.
const uploadsFolder = ".croft-uploads"

// openUploads opens the folder of uploads, and makes it if need be.
func openUploads(folder string) (*os.Root, error) {
	root, err := os.OpenRoot(folder)
	if err == nil {
		defer root.Close()
		err = root.Mkdir(uploadsFolder, 0o700)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, cli.Invalid("--files: %v; the server keeps content there until all of it has arrived", err)
	}
	uploads, err := root.OpenRoot(uploadsFolder)
	if err != nil {
		return nil, cli.Invalid("--files: %v; remove it, the server makes a folder in its place", err)
	}
	return uploads, nil
}

// openFiles offers the files below a folder. The function that it returns
// closes the folder.
//
// A name on the way to a file may be no link: it could lead out of the folder,
// or to a file that the policy means for others. A link that appears after the
// look is found, too, because the guard then has another name.
func openFiles(folder string) (server.Files, func(), error) {
	place, err := resolved(folder)
	if err != nil {
		return nil, nil, cli.Invalid("--files: %v", err)
	}
	root, err := os.OpenRoot(place)
	if err != nil {
		return nil, nil, cli.Invalid("--files: %v; name a folder", err)
	}
	open := func(_ context.Context, path string) (guard.Artifact, error) {
		local := filepath.FromSlash(path)
		if !filepath.IsLocal(local) || strings.ContainsAny(path, `\:`) {
			return nil, cli.Invalid("path %q: it is none of a file here", path)
		}
		if err := noLinks(root, local); err != nil {
			return nil, err
		}
		g, err := file.Open(filepath.Join(place, local), nil)
		if err != nil {
			return nil, hidden(err)
		}
		if g.Target() != filepath.Join(place, local) {
			return nil, errLink
		}
		return g, nil
	}
	return open, func() { _ = root.Close() }, nil
}

// checkFiles refuses a folder of files that holds what the server itself relies
// on: a client could read the keys, or replace the policy or the store.
func (f *flags) checkFiles(storeName string) error {
	if f.files == "" {
		return nil
	}
	folder, err := resolved(f.files)
	if err != nil {
		return cli.Invalid("--files: %v", err)
	}
	secret := []string{f.policy, f.signKey, f.sessionKey, f.key, f.cert, f.clientCA, f.metrics, storePath(storeName)}
	for _, own := range secret {
		if own == "" {
			continue
		}
		path, err := resolved(own)
		if err != nil {
			continue // no file: a store elsewhere, or the address of metrics
		}
		if rest, err := filepath.Rel(folder, path); err == nil && filepath.IsLocal(rest) {
			return cli.Invalid("--files: the server's own %s is in this folder, where clients could reach it; "+
				"name another folder", cli.Word(own))
		}
	}
	return nil
}

// resolved returns the absolute path of a file, without links.
func resolved(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(path)
}

// storePath returns the path of a store that is on this machine, or "".
func storePath(name string) string {
	u, err := url.Parse(name)
	switch {
	case err != nil || !strings.Contains(name, "://"):
		return name
	case u.Host == "":
		return filepath.FromSlash(u.Path)
	}
	return ""
}

var errLink = cli.Invalid("path: there is a link on the way, and the server follows none")

// noLinks walks the path to a file. Its folders must exist. The file itself
// need not.
func noLinks(root *os.Root, path string) error {
	for at, rest := "", path; rest != ""; {
		var name string
		name, rest, _ = strings.Cut(rest, string(filepath.Separator))
		at = filepath.Join(at, name)
		info, err := root.Lstat(at)
		switch {
		case errors.Is(err, fs.ErrNotExist) && rest == "":
			return nil
		case errors.Is(err, fs.ErrNotExist):
			return cli.Invalid("path: its folder is not there; the operator of the server makes it")
		case err != nil:
			return err
		case info.Mode()&fs.ModeSymlink != 0:
			return errLink
		case rest != "" && !info.IsDir(), rest == "" && !info.Mode().IsRegular():
			return cli.Invalid("path: it is not that of a file")
		}
	}
	return nil
}

// hidden takes the folders of the server out of an error about bad input.
func hidden(err error) error {
	if errors.Is(err, fence.ErrInvalid) {
		return cli.Invalid("path: the server cannot guard this file")
	}
	return err
}
