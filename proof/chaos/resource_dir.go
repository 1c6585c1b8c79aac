package chaos

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	_ "github.com/croft-dev/croft/backend/dir" // its stores
	"github.com/croft-dev/croft/backend/file"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
)

// fileResource is a file. site is its folder.
type fileResource struct {
	path string
	file *file.File
}

func openFile(_ context.Context, site, key string) (resource, error) {
	path := filepath.Join(site, strings.ReplaceAll(key, "/", "-")+".txt")
	opened, err := file.Open(path, nil)
	if err != nil {
		return nil, err
	}
	return &fileResource{path: path, file: opened}, nil
}

func (p *fileResource) guard() guard.Guard { return p.file }

func (p *fileResource) read(context.Context) (string, error) {
	text, err := os.ReadFile(p.path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return string(text), err
}

func (p *fileResource) write(ctx context.Context, stamp fence.Stamp, update string) error {
	_, err := p.file.Write(ctx, stamp, strings.NewReader(update))
	return err
}

// bare replaces the file in one step, but without asking the guard.
func (p *fileResource) bare(_ context.Context, update string) error {
	fresh, err := os.CreateTemp(filepath.Dir(p.path), "bare-")
	if err != nil {
		return err
	}
	_, err = fresh.WriteString(update)
	return errors.Join(err, fresh.Close(), os.Rename(fresh.Name(), p.path))
}

func (p *fileResource) applied(context.Context) ([]string, bool, error) { return nil, false, nil }

func (p *fileResource) close() { _ = p.file.Close() }
