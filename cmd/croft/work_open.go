package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/work"
)

// ledgerSuffix is added to the default store's directory to get the file of the
// default ledger.
const ledgerSuffix = "-work.db"

// ledgerName returns the URL of the ledger that the flag, the environment or
// the default names. The default store is a directory and keeps no ledger. The
// default ledger is a SQLite file beside it. That is also so inside "croft
// run", which passes the name of that directory to its command.
func (a *app) ledgerName() (name string, defaulted bool, err error) {
	name, defaulted, err = a.storeName()
	if err != nil {
		return "", false, err
	}
	if usual, err := defaultStore(); err == nil && name == usual {
		defaulted = true
	}
	if defaulted {
		return defaultLedger(name), true, nil
	}
	if !isURL(name) || strings.HasPrefix(name, "dir://") {
		return "", false, invalid("ledger %s: a directory keeps leases, but no work items; give --store "+
			"sqlite:///path/to/file.db for one machine, or postgres://user@host/db", word(name))
	}
	return name, false, nil
}

// defaultLedger is the URL of the ledger beside the default store.
func defaultLedger(store string) string {
	path := filepath.ToSlash(store + ledgerSuffix)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	return (&url.URL{Scheme: "sqlite", Path: path}).String()
}

// ledgerOf opens the ledger in the place of a store. It returns nil without an
// error if there is none. It creates no file.
func (a *app) ledgerOf(ctx context.Context, name string) (work.Ledger, error) {
	if usual, err := defaultStore(); err == nil && name == usual {
		name = defaultLedger(name)
	}
	scheme, _, _ := strings.Cut(name, "://")
	if !isURL(name) || !slices.Contains(work.Schemes(), scheme) {
		return nil, nil
	}
	if path := localPath(name); path != "" {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
	}
	return a.openLedger(ctx, name)
}

// ledger opens the ledger. It prints the name of the ledger if it is the
// default.
func (a *app) ledger(ctx context.Context) (work.Ledger, error) {
	name, defaulted, err := a.ledgerName()
	if err != nil {
		return nil, err
	}
	if defaulted {
		usual, err := defaultStore()
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(a.stderr, "croft: this machine only: %s\n", usual+ledgerSuffix)
		if err := os.MkdirAll(filepath.Dir(usual), 0o700); err != nil {
			return nil, err
		}
	}
	return a.openLedger(ctx, name)
}

// openLedger opens a ledger. It gives up in time, even if the system call does
// not return.
func (a *app) openLedger(ctx context.Context, name string) (work.Ledger, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*a.timeout)
	defer cancel()
	type opened struct {
		l   work.Ledger
		err error
	}
	done := make(chan opened, 1)
	go func() {
		l, err := work.Open(ctx, name)
		done <- opened{l, err}
	}()
	select {
	case o := <-done:
		return o.l, o.err
	case <-ctx.Done():
		return nil, store.Unknown(fmt.Errorf("%s cannot be opened: %w; see whether the mount or the server answers",
			store.Redact(name), ctx.Err()))
	}
}

// lookUpLedger opens the ledger only if it exists already, for completion. It
// prints nothing and creates nothing.
func (a *app) lookUpLedger(ctx context.Context) (work.Ledger, error) {
	name, _, err := a.ledgerName()
	if err != nil {
		return nil, err
	}
	if path := localPath(name); path != "" {
		if _, err := os.Stat(path); err != nil {
			return nil, err
		}
	}
	return a.openLedger(ctx, name)
}

// ledgerClient returns a client of the lease store in the ledger's database.
// Dispatchers and reconcilers keep their leases there.
func (a *app) ledgerClient(ctx context.Context) (c *croft.Client, end func(), err error) {
	name, _, err := a.ledgerName()
	if err != nil {
		return nil, nil, err
	}
	opening, cancel := context.WithTimeout(ctx, 2*a.timeout)
	defer cancel()
	st, err := openWithin(opening, name)
	if err != nil {
		return nil, nil, err
	}
	c = croft.New(st, &croft.Options{Owner: a.owner, CallTimeout: a.timeout})
	return c, func() {
		_ = c.Close()
		_ = st.Close()
	}, nil
}

// withLedger opens the ledger and calls look, which may take up to listTimeout.
func (a *app) withLedger(
	ctx context.Context, look func(ctx context.Context, l work.Ledger, now time.Time) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	l, err := a.ledger(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	now, err := l.Now(ctx)
	if err != nil {
		return store.Unknown(err)
	}
	return look(ctx, l, now)
}

// applied opens the ledger and sends it requests.
func (a *app) applied(ctx context.Context, requests ...work.Request) ([]work.Answer, error) {
	for _, req := range requests {
		if err := req.Check(); err != nil {
			return nil, err // before anything is opened
		}
	}
	l, err := a.ledger(ctx)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	return a.apply(ctx, l, requests), nil
}

// apply sends requests to the ledger. It repeats those without an answer, which
// is safe, until twice the timeout has passed.
func (a *app) apply(ctx context.Context, l work.Ledger, requests []work.Request) []work.Answer {
	ctx, cancel := context.WithTimeout(ctx, 2*a.timeout)
	defer cancel()
	answers := make([]work.Answer, len(requests))
	left := make([]int, len(requests))
	for i := range left {
		left[i] = i
	}
	for pause := 100 * time.Millisecond; ; pause *= 2 {
		batch := make([]work.Request, len(left))
		for i, at := range left {
			batch[i] = requests[at]
		}
		call, done := context.WithTimeout(ctx, a.timeout)
		var unknown []int
		for i, answer := range l.Apply(call, batch) {
			answers[left[i]] = answer
			if errors.Is(answer.Err, work.ErrUnknown) {
				unknown = append(unknown, left[i])
			}
		}
		done()
		left = unknown
		if len(left) == 0 || !sleep(ctx, pause) {
			return answers
		}
	}
}

// sleep waits for d. It returns false if ctx ends before.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
