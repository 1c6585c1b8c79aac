package guard

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/registry"
)

// ErrNotAllowed is matched when a target is in none of the places that an
// operator has allowed.
var ErrNotAllowed = errors.New("the holder chose this target, and nobody here allowed it; it was not opened")

// Allowed is a list of places. An operator lets Croft open targets there that
// somebody else wrote down, such as the holder of a lease in its record. The
// zero Allowed has no place.
type Allowed struct {
	places []*url.URL
}

// Allow makes a list of places. A place is the absolute path of a folder or of
// a file, or a URL. What is below its path is in it, too.
//
//	/srv/reports
//	s3://bucket/reports
//	postgres://ann:secret@db.example.com/app?sslmode=verify-full
func Allow(places ...string) (Allowed, error) {
	var a Allowed
	for _, place := range places {
		u, err := guards.Parse(place)
		if err == nil {
			err = normal(u)
		}
		if err != nil {
			return Allowed{}, fmt.Errorf("%w place %q: %w; write the absolute path of a folder, or a URL such as s3://BUCKET/FOLDER", fence.ErrInvalid, registry.Redact(place), err)
		}
		a.places = append(a.places, u)
	}
	return a, nil
}

// Open opens the guard of a target that is in one of the places. Where it
// leads, how, and as whom is taken from the place: scheme, host, user, password
// and query. Only the path and the name of the resource are taken from the
// target. If the guard then found goes by another name than the target, it is
// not the one that was meant. In a path on this machine, links are resolved
// first. If the target is in no place, nothing is opened and the error matches
// [ErrNotAllowed].
func (a Allowed) Open(ctx context.Context, target string) (Guard, error) {
	t, err := guards.Parse(target)
	if err == nil {
		err = normal(t)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotAllowed, err)
	}
	for _, place := range a.places {
		if !in(place, t) {
			continue
		}
		to := *place
		to.Path, to.RawPath, to.Fragment, to.RawFragment = t.Path, t.RawPath, t.Fragment, t.RawFragment
		g, err := guards.OpenURL(ctx, &to)
		if err != nil {
			return nil, err
		}
		if !named(g, t, target) {
			_ = g.Close()
			return nil, fmt.Errorf("%w: what the place has there is %s", ErrNotAllowed, registry.Redact(g.Target()))
		}
		return g, nil
	}
	return nil, ErrNotAllowed
}

// named reports whether a guard goes by the name of a target. On this machine
// that is a path without links. A link that somebody put on the path meanwhile
// has led to a guard of another name.
func named(g Guard, t *url.URL, target string) bool {
	if t.Host != "" {
		return g.Target() == target
	}
	name, err := guards.Parse(g.Target())
	return err == nil && name.Path == t.Path && name.Fragment == t.Fragment
}

// in reports whether a target is in a place, as far as their URLs tell. A port
// that one of them leaves out is looked at when the guard is open.
func in(place, t *url.URL) bool {
	return place.Scheme == t.Scheme && place.Hostname() == t.Hostname() &&
		(place.Port() == t.Port() || place.Port() == "" || t.Port() == "") &&
		below(place.Path, t.Path) && (place.Fragment == "" || place.Fragment == t.Fragment)
}

// normal makes equal URLs of equal places, or says why it cannot.
func normal(u *url.URL) error {
	u.Scheme, u.Host = strings.ToLower(u.Scheme), strings.ToLower(u.Host)
	local := u.Host == ""
	switch {
	case u.Opaque != "" || local && !filepath.IsAbs(filepath.FromSlash(u.Path)):
		return errors.New("its path is not absolute")
	case path.Clean("/"+u.Path) != "/"+strings.Trim(u.Path, "/"):
		return errors.New("its path has empty, . or .. segments")
	case !local:
		return nil
	}
	resolved, err := resolve(filepath.FromSlash(u.Path))
	u.Path, u.RawPath = filepath.ToSlash(resolved), ""
	return err
}

// resolve is a path without links. Its last segments need not exist.
func resolve(p string) (string, error) {
	if resolved, err := filepath.EvalSymlinks(p); err == nil {
		return resolved, nil
	}
	if _, err := os.Lstat(p); !errors.Is(err, fs.ErrNotExist) {
		return "", errors.New("it leads nowhere") // a link to nothing, or nobody can tell
	}
	dir, err := resolve(filepath.Dir(p))
	return filepath.Join(dir, filepath.Base(p)), err
}

// below reports whether a path is that of a place or below it.
func below(place, p string) bool {
	rest, found := strings.CutPrefix(p, strings.TrimSuffix(place, "/"))
	return found && (rest == "" || rest[0] == '/')
}
