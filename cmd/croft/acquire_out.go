package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// leaseFile is the file of acquire --out. Until save renames it, the lease is
// in a temporary file beside it, so the old content stays if anything fails.
type leaseFile struct {
	path    string
	replace bool // a live lease in the file is replaced, too
	tmp     *os.File
}

// newLeaseFile makes the temporary file, so that a bad path is an error before
// anything is asked of the store.
func newLeaseFile(path string, replace bool) (*leaseFile, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, cli.Invalid("--out %q: it is no regular file", path)
	}
	// CreateTemp makes files that only their owner can read.
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return nil, cli.Invalid("--out: %v; name a file in a directory that can be written", err)
	}
	return &leaseFile{path: path, replace: replace, tmp: tmp}, nil
}

// check refuses to replace content that somebody still needs: text that is no
// lease, or the lease of another key that is alive. A live lease of the same
// key needs no check: while it lives, the store refuses the acquire.
func (f *leaseFile) check(ctx context.Context, st store.Store, key string) error {
	text, err := f.read()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return cli.Invalid("--out: %v", err)
	case f.replace || len(text) < cli.MaxLease && len(bytes.TrimSpace(text)) == 0:
		return nil
	}
	deed, err := cli.ParseLease(string(text))
	if err != nil {
		return &cli.UsageError{
			Message: fmt.Sprintf("--out %q: the file holds something else than a lease", f.path),
			Hint:    "name another file, or add --replace",
		}
	}
	if deed.Key == key {
		return nil
	}
	rec, err := st.Get(ctx, deed.Key)
	if err != nil {
		return store.Unknown(err)
	}
	now, err := st.Now(ctx)
	if err != nil {
		return store.Unknown(err)
	}
	if rec.Grant != deed.Secret.Grant() || !rec.Alive(now) {
		return nil
	}
	return &cli.UsageError{
		Message: fmt.Sprintf("--out %q: the file holds the lease of %q, which is alive", f.path, deed.Key),
		Hint:    "release that lease, name another file, or add --replace",
	}
}

// read reads as much of the file as a lease can have. Another user may have put
// a pipe there since newLeaseFile looked, and croft may hold the key by now.
func (f *leaseFile) read() ([]byte, error) {
	file, err := os.OpenFile(f.path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // opening a pipe would wait for its writer
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: it is no regular file", f.path)
	}
	return io.ReadAll(io.LimitReader(file, cli.MaxLease))
}

// save puts the lease in its place.
func (f *leaseFile) save(d tenure.Deed) error {
	_, err := f.tmp.WriteString(d.Text() + "\n")
	if err := errors.Join(err, f.tmp.Close()); err != nil {
		return err
	}
	return os.Rename(f.tmp.Name(), f.path)
}

// remove removes the temporary file, if it is still there.
func (f *leaseFile) remove() {
	_ = f.tmp.Close()
	_ = os.Remove(f.tmp.Name())
}

// savedView is a lease in JSON whose secret is in a file.
type savedView struct {
	Key      string       `json:"key"`
	Token    fence.Token  `json:"token"`
	Stamp    string       `json:"stamp"`
	Out      string       `json:"out"`
	Owner    string       `json:"owner"`
	Cause    tenure.Cause `json:"cause"`
	Deadline cli.When     `json:"deadline"`
	TTL      string       `json:"ttl"`
}

// printSaved prints a lease that is in a file.
func (a *app) printSaved(v cli.LeaseView, path string) {
	if !a.JSON {
		a.Confirm("acquired %s for %s: the lease is in %s", cli.Word(v.Key), v.TTL, cli.Word(path))
		return
	}
	a.Print(savedView{
		Key: v.Key, Token: v.Token, Stamp: v.Stamp, Out: path, Owner: v.Owner, Cause: v.Cause, Deadline: v.Deadline,
		TTL: v.TTL,
	})
}
