package sqlite

import (
	"context"
	"fmt"
	"net/url"
	"runtime"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/inject"
	"github.com/croft-dev/croft/store"
)

func init() {
	store.Register("sqlite", openURL)
	guard.Register("sqlite", openGuard)
	inject.SQLite = func(
		ctx context.Context, path string, lockWait time.Duration, now func() time.Time,
	) (store.Store, error) {
		return Open(ctx, path, &Options{SweepEvery: -1, LockWait: lockWait, now: now})
	}
}

// openURL opens a URL like "sqlite:///path/to/file.db". It may have the
// parameters retention, lock_wait and network.
func openURL(ctx context.Context, u *url.URL) (store.Store, error) {
	a, err := parse("store", u)
	if err != nil {
		return nil, err
	}
	if u.Fragment != "" {
		return nil, a.bad("it has a fragment, which names a guard and no store")
	}
	st, err := Open(ctx, pathOf(u), &a.options)
	if err != nil {
		return nil, err
	}
	return st, nil
}

// pathOf returns the path in a URL. On Windows it drops the slash before the
// drive.
func pathOf(u *url.URL) string {
	if runtime.GOOS == "windows" && len(u.Path) > 2 && u.Path[0] == '/' && u.Path[2] == ':' {
		return u.Path[1:]
	}
	return u.Path
}

// address is a parsed URL.
type address struct {
	kind    string
	url     *url.URL
	options Options
}

func (a *address) bad(why string) error {
	form := "sqlite:///path/to/file.db, with ?retention=24h or &lock_wait=2s if need be"
	if a.kind == "target" {
		form = "sqlite:///path/to/file.db#NAME"
	}
	return fmt.Errorf("%w %s URL %q: %s; write %s", fence.ErrInvalid, a.kind, store.Redact(a.url.String()), why, form)
}

func parse(kind string, u *url.URL) (*address, error) {
	a := &address{kind: kind, url: u}
	if u.Host != "" || u.User != nil || u.Opaque != "" {
		return nil, a.bad("it names a host, but a file has none; a relative path cannot be written so")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, a.bad("its query cannot be read")
	}
	for name, values := range query {
		into := map[string]*time.Duration{"retention": &a.options.Retention, "lock_wait": &a.options.LockWait}[name]
		switch {
		case len(values) != 1:
			return nil, a.bad(fmt.Sprintf("parameter %q is given twice", name))
		case name == "network" && values[0] == "allow":
			a.options.AllowNetwork = true
		case name == "columns":
			return nil, fmt.Errorf("%w %s URL %q: it names columns in a table, which only a program that has the "+
				"same Columns can open; raise the fence from there", fence.ErrInvalid, kind, store.Redact(u.String()))
		case into == nil:
			return nil, a.bad(fmt.Sprintf("parameter %s=%q is unknown; "+
				"known are retention, lock_wait and network=allow", name, values[0]))
		default:
			if *into, err = time.ParseDuration(values[0]); err != nil || *into < time.Millisecond {
				return nil, a.bad(fmt.Sprintf("%s %q is not a duration of a millisecond or more", name, values[0]))
			}
		}
	}
	return a, nil
}
