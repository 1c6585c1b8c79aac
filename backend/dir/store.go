package dir

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/fsys"
	"github.com/croft-dev/croft/internal/inject"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/cas"
	"github.com/croft-dev/croft/tenure"
)

// Options of a directory store. The zero value is good.
type Options struct {
	// Retention is how long a record outlives its last use. Default:
	// [store.DefaultRetention].
	Retention time.Duration

	now     func() time.Time       // default: the file system's clock
	fs      fsys.FS                // default fsys.OS
	newLife func(time.Time) string // default newLife
}

// Store keeps leases in a directory. Its methods are safe for concurrent use,
// by any number of processes and handles on the same directory.
type Store struct {
	*cas.Store
	reg  *register
	tidy tidying
}

var (
	_ store.Store     = (*Store)(nil)
	_ store.Sweeper   = (*Store)(nil)
	_ store.Watcher   = (*Store)(nil)
	_ store.Announcer = (*Store)(nil)
	_ store.Examiner  = (*Store)(nil)
)

// Open opens the store in a directory. o may be nil.
//
// Open makes the directory, for this user alone, if it is missing. If the
// directory exists and gives permissions to others, all files in it get the
// same permissions. Open refuses a directory that cannot keep the promises of a
// store. A store that cannot be written, on a read-only mount for example, can
// still be read.
func Open(path string, o *Options) (*Store, error) {
	if o == nil {
		o = &Options{}
	}
	if err := platform(); err != nil {
		return nil, err
	}
	if o.Retention < 0 {
		return nil, fmt.Errorf("%w retention %s: it must not be negative", fence.ErrInvalid, o.Retention)
	}
	root, err := cleanPath(path)
	if err != nil {
		return nil, err
	}
	fsy := o.fs
	if fsy == nil {
		fsy = fsys.OS{}
	}
	if err := refuseSynced(fsy, root); err != nil {
		return nil, err
	}
	l, err := newLayout(fsy, root)
	if err != nil {
		return nil, err
	}
	clock, err := openClock(l, o.now)
	if err != nil {
		return nil, err
	}
	reg := newRegister(l, clock)
	if o.newLife != nil {
		reg.newLife = o.newLife
	}
	retention := o.Retention
	if retention == 0 {
		retention = store.DefaultRetention
	}
	return &Store{
		// The store sweeps by its own rule (tidying), so cas must not.
		Store: cas.New(reg, &cas.Options{Retention: retention, SweepEvery: -1}),
		reg:   reg,
		tidy:  tidying{reg: reg, retention: retention, slice: tidySlice},
	}, nil
}

func cleanPath(path string) (string, error) {
	switch {
	case path == "":
		return "", fmt.Errorf("%w store: the path is empty; name a directory", fence.ErrInvalid)
	case path == "~" || strings.HasPrefix(path, "~/"):
		return "", fmt.Errorf("%w store %q: nobody has put your home directory in the place of ~; "+
			"write the whole path", fence.ErrInvalid, path)
	case strings.ContainsRune(path, 0):
		return "", fmt.Errorf("%w store %q: it has a NUL byte", fence.ErrInvalid, path)
	}
	root, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("store %s: %w; write the whole path", path, err)
	}
	return root, nil
}

func init() {
	store.Register("dir", openURL)
	inject.Dir = func(path string, retention time.Duration, fsy fsys.FS, now func() time.Time) (store.Store, error) {
		return Open(path, &Options{Retention: retention, fs: fsy, now: now})
	}
}

// openURL opens "dir:///path", optionally with "?retention=", or a plain path.
func openURL(_ context.Context, u *url.URL) (store.Store, error) {
	bad := func(why string) error {
		return fmt.Errorf("%w store URL %q: %s; "+
			"write dir:///path, dir:///path?retention=24h, or a plain path",
			fence.ErrInvalid, store.Redact(u.String()), why)
	}
	if u.Host != "" || u.User != nil || u.Opaque != "" {
		return nil, bad("it names a host, but a directory has none")
	}
	if u.Fragment != "" {
		return nil, bad("it has a fragment")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, bad("its query cannot be read")
	}
	o := &Options{}
	for name, values := range query {
		if name != "retention" || len(values) != 1 {
			return nil, bad(fmt.Sprintf("parameter %q is unknown or given twice", name))
		}
		if o.Retention, err = time.ParseDuration(values[0]); err != nil || o.Retention <= 0 {
			return nil, bad(fmt.Sprintf("retention %q is not a positive duration", values[0]))
		}
	}
	st, err := Open(u.Path, o)
	if err != nil {
		return nil, err
	}
	return st, nil
}

// Apply carries out requests. After a release it may tidy up in the background,
// for a short time and rarely.
func (s *Store) Apply(ctx context.Context, requests []tenure.Request) []store.Answer {
	answers := s.Store.Apply(ctx, requests)
	for i, a := range answers {
		if requests[i].Verb == tenure.Release && a.Err == nil {
			s.tidy.soon(a.Now)
			break
		}
	}
	return answers
}

// Now returns the time of the file system's clock. If the directory cannot be
// written, it returns this machine's time, for people who read the store.
// Requests do not use it: they fail.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	now, err := s.Store.Now(ctx)
	if unwritable(err) {
		return tenure.Time(time.Now()), nil
	}
	return now, err
}

// Sweep drops the records that have not mattered for a retention, and removes
// the files that stopped processes have left behind.
func (s *Store) Sweep(ctx context.Context) (dropped int, err error) {
	dropped, err = s.Store.Sweep(ctx)
	return dropped, errors.Join(err, s.tidy.leftovers(ctx))
}

// Close ends all waits and closes the probe file. It waits a moment for tidying
// to end. It releases no lease.
func (s *Store) Close() error {
	s.tidy.close()
	return s.Store.Close()
}
