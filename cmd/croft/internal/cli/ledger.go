package cli

import (
	"context"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/croft-dev/croft/work"
)

// LedgerSuffix is added to the default store's directory to get the file of the
// default ledger.
const LedgerSuffix = "-work.db"

// LedgerName returns the URL of the ledger that the flag, the environment or
// the default names. The default store is a directory and keeps no ledger. The
// default ledger is a SQLite file beside it. That is also so inside "croft
// run", which passes the name of that directory to its command.
func (a *App) LedgerName() (name string, defaulted bool, err error) {
	name, defaulted, err = a.StoreName()
	if err != nil {
		return "", false, err
	}
	if usual, err := DefaultStore(); err == nil && name == usual {
		defaulted = true
	}
	if defaulted {
		return defaultLedger(name), true, nil
	}
	if !IsURL(name) || strings.HasPrefix(name, "dir://") {
		return "", false, Invalid("ledger %s: a directory keeps leases, but no work items; give --store "+
			"sqlite:///path/to/file.db for one machine, or postgres://user@host/db", Word(name))
	}
	return name, false, nil
}

// defaultLedger is the URL of the ledger beside the default store.
func defaultLedger(store string) string {
	path := filepath.ToSlash(store + LedgerSuffix)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	return (&url.URL{Scheme: "sqlite", Path: path}).String()
}

// LedgerOf opens the ledger in the place of a store. It returns nil without an
// error if there is none. It creates no file.
func (a *App) LedgerOf(ctx context.Context, name string) (work.Ledger, error) {
	if usual, err := DefaultStore(); err == nil && name == usual {
		name = defaultLedger(name)
	}
	scheme, _, _ := strings.Cut(name, "://")
	if !IsURL(name) || !slices.Contains(work.Schemes(), scheme) {
		return nil, nil
	}
	if path := LocalPath(name); path != "" {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
	}
	return a.OpenLedger(ctx, name)
}

// OpenLedger opens a ledger. It gives up in time, even if the system call does
// not return.
func (a *App) OpenLedger(ctx context.Context, name string) (work.Ledger, error) {
	defer a.AskOnTerminal()()
	ctx, cancel := context.WithTimeout(ctx, 2*a.Timeout)
	defer cancel()
	return within(ctx, name, work.Open)
}
