package guard

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/registry"
)

// ErrNotAllowed is matched when a target lies in none of the places that an
// operator has allowed.
var ErrNotAllowed = errors.New("somebody else chose this target, and nobody here allowed it; it was not opened")

// Allowed is a list of places. An operator allows Croft to open targets there
// that somebody else has written down, for example the holder of a lease in its
// record. The zero Allowed is an empty list.
type Allowed struct {
	places []place
}

type place struct {
	*url.URL
	resolved string // the path without links, if it is on this machine
}

// Allow makes a list of places. A place is the absolute path of a folder or of
// a file, or a URL. All paths below it belong to it, too.
//
//	/srv/reports
//	s3://bucket/reports
//	postgres://ann:secret@db.example.com/app?sslmode=verify-full
func Allow(places ...string) (Allowed, error) {
	var a Allowed
	for _, text := range places {
		u, err := parse(text)
		p := place{u, ""}
		if err == nil && local(u) {
			p.resolved, err = resolve(filepath.FromSlash(u.Path))
			p.resolved = filepath.ToSlash(p.resolved)
		}
		if err != nil {
			return Allowed{}, fmt.Errorf("%w place %q: %w; write the absolute path of a folder, "+
				"or a URL such as s3://BUCKET/FOLDER", fence.ErrInvalid, registry.Redact(text), err)
		}
		a.places = append(a.places, p)
	}
	return a, nil
}

// Open opens the guard of a target that lies in one of the places. It takes
// scheme, host, user, password and query from the place. It takes only the path
// and the name of the resource from the target. The opened guard must have the
// target's name.
//
// If the target lies in no place, Open neither opens nor looks at anything, and
// the error matches [ErrNotAllowed].
func (a Allowed) Open(ctx context.Context, target string) (Guard, error) {
	t, err := parse(target)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotAllowed, err)
	}
	refused := ErrNotAllowed
	for _, p := range a.places {
		if !p.has(t) {
			continue
		}
		to := *p.URL
		to.Path, to.RawPath, to.Fragment, to.RawFragment = t.Path, t.RawPath, t.Fragment, t.RawFragment
		if local(t) {
			// Links below the place may lead out of it.
			resolved, err := resolve(filepath.FromSlash(t.Path))
			to.Path, to.RawPath = filepath.ToSlash(resolved), ""
			if err != nil || !below(p.resolved, to.Path) {
				continue
			}
		}
		opened := to
		g, err := guards.OpenURL(named(ctx), &opened)
		if err != nil {
			return nil, err
		}
		if !same(g.Target(), &to, t) {
			_ = g.Close()
			refused = fmt.Errorf("%w: what the place has there is %q", ErrNotAllowed, registry.Redact(g.Target()))
			continue // another place may have it
		}
		return g, nil
	}
	return nil, refused
}

// CheckNamed returns nil if a target may be written down for others to open, or
// an error that matches fence.ErrInvalid. It must mean the same in every
// process, so a path must be absolute. It must hold no password, because every
// reader would learn it.
func CheckNamed(target string) error {
	u, err := parse(target)
	if err == nil && u.User != nil {
		if _, has := u.User.Password(); has {
			err = errors.New("it has a password, which every reader would learn; leave it out")
		}
	}
	if err != nil && !errors.Is(err, fence.ErrInvalid) {
		err = fmt.Errorf("%w target %q: %w", fence.ErrInvalid, registry.Redact(target), err)
	}
	return err
}

// has reports whether a target lies in a place, judging by the URLs alone. If
// one of them leaves out the port, the ports are compared when the guard is
// open.
func (p place) has(t *url.URL) bool {
	return p.Scheme == t.Scheme && p.Hostname() == t.Hostname() &&
		(p.Port() == t.Port() || p.Port() == "" || t.Port() == "") &&
		(below(p.Path, t.Path) || p.resolved != "" && below(p.resolved, t.Path)) &&
		(p.Fragment == "" || p.Fragment == t.Fragment)
}

// same reports whether the target means the opened guard. It does not compare
// users: the place's user has logged in, and not the holder. On this machine
// the guard's name is a path without links. If somebody has put a link on the
// path meanwhile, the guard has another name.
func same(name string, to, target *url.URL) bool {
	got, err := parse(name)
	if err != nil || got.Scheme != to.Scheme || got.Fragment != to.Fragment {
		return false
	}
	if local(to) {
		return got.Path == to.Path
	}
	return server(got) == server(target) && got.Path == target.Path && where(got) == where(target)
}

// server returns the host and the port of a URL. If the URL has no port, it
// adds the usual one.
func server(u *url.URL) string {
	if usual := ports[u.Scheme]; usual != "" && u.Host != "" && u.Port() == "" {
		return net.JoinHostPort(u.Hostname(), usual)
	}
	return u.Host
}

var ports = map[string]string{
	"postgres": "5432", "redis": "6379", "rediss": "6379", "etcd": "2379", "etcds": "2379",
	"http": "80", "https": "443",
}

// where returns the part of a query that says which resource is meant. The rest
// says how to get there, and comes from the place.
func where(u *url.URL) string {
	query, kept := u.Query(), url.Values{}
	for _, name := range []string{
		"endpoint", "host", "port", "dbname", "database", "service", "schema", "columns", "db", "cluster",
	} {
		if query.Has(name) {
			kept[name] = query[name]
		}
	}
	return kept.Encode()
}

// local reports whether a URL is a path on this machine.
func local(u *url.URL) bool { return u.Scheme == files || u.Scheme == "sqlite" }

// parse reads a place or a target. It looks only at the text.
func parse(text string) (*url.URL, error) {
	u, err := guards.Parse(text)
	if err != nil {
		return nil, err
	}
	u.Scheme, u.Host = strings.ToLower(u.Scheme), strings.ToLower(u.Host)
	if u.Scheme == "postgresql" {
		u.Scheme = "postgres"
	}
	switch {
	case u.Opaque != "" || local(u) && !filepath.IsAbs(filepath.FromSlash(u.Path)):
		return nil, errors.New("its path is not absolute")
	case strings.TrimSuffix(u.Path, "/") != strings.TrimSuffix(path.Clean(u.Path), "/") && u.Path != "":
		return nil, errors.New("its path has empty, . or .. segments")
	case local(u) && strings.HasPrefix(filepath.VolumeName(filepath.FromSlash(u.Path)), `\\`):
		return nil, errors.New("its path is on another machine")
	}
	return u, nil
}

// resolve returns a path without links. Its last segments need not exist.
func resolve(p string) (string, error) {
	if resolved, err := filepath.EvalSymlinks(p); err == nil {
		return resolved, nil
	}
	if _, err := os.Lstat(p); !errors.Is(err, fs.ErrNotExist) {
		return "", errors.New("it leads nowhere") // a dangling link, or Lstat failed
	}
	dir, err := resolve(filepath.Dir(p))
	return filepath.Join(dir, filepath.Base(p)), err
}

// below reports whether a path equals that of a place, or lies below it.
func below(place, p string) bool {
	rest, found := strings.CutPrefix(p, strings.TrimSuffix(place, "/"))
	return found && (rest == "" || rest[0] == '/')
}

type namedKey struct{}

// named marks the opening of a target that somebody else wrote down.
func named(ctx context.Context) context.Context { return context.WithValue(ctx, namedKey{}, true) }

// IsNamed reports whether somebody else has written down the target that an
// [Opener] is to open. The opener must then make no trial of the service,
// because a trial writes there.
func IsNamed(ctx context.Context) bool { return ctx.Value(namedKey{}) != nil }
