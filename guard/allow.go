package guard

import (
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
//	postgres://db.example.com:5432/app
//
// A target is in the place of a URL if scheme, host, port and query are the
// same, and if its path is that of the place or below it. So a target with an
// endpoint in its query is only in a place with that endpoint in its query. A
// target with a password in it is in no place.
func Allow(places ...string) (Allowed, error) {
	var a Allowed
	for _, place := range places {
		u, err := parsePlace(place)
		if err != nil {
			return Allowed{}, fmt.Errorf("%w place %q: %w; write the absolute path of a folder, or a URL such as s3://BUCKET/FOLDER", fence.ErrInvalid, registry.Redact(place), err)
		}
		a.places = append(a.places, u)
	}
	return a, nil
}

// Has reports whether a target is in one of the places. Of the path of a file
// it resolves links first.
func (a Allowed) Has(target string) bool {
	if len(a.places) == 0 {
		return false
	}
	t, err := parsePlace(target)
	if err != nil {
		return false
	}
	for _, p := range a.places {
		if p.Scheme == t.Scheme && p.Host == t.Host && p.RawQuery == t.RawQuery && below(p.Path, t.Path) && (p.Fragment == "" || p.Fragment == t.Fragment) {
			return true
		}
	}
	return false
}

// parsePlace reads a place or a target. Of two that are the same it makes the
// same URL.
func parsePlace(raw string) (*url.URL, error) {
	u, err := guards.Parse(raw)
	if err != nil {
		return nil, err
	}
	if _, has := u.User.Password(); has {
		return nil, errors.New("it has a password")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errors.New("its query cannot be read")
	}
	same := &url.URL{Scheme: strings.ToLower(u.Scheme), Host: strings.ToLower(u.Host), RawQuery: query.Encode(), Fragment: u.Fragment}
	if same.Scheme == files {
		if !filepath.IsAbs(u.Path) {
			return nil, errors.New("its path is not absolute")
		}
		real, err := resolve(filepath.Clean(u.Path))
		if err != nil {
			return nil, err
		}
		same.Path = filepath.ToSlash(real)
		return same, nil
	}
	same.Path = strings.TrimSuffix(u.Path, "/")
	if clean := path.Clean("/" + same.Path); same.Path != "" && clean != same.Path {
		return nil, errors.New("its path has empty, . or .. segments")
	}
	return same, nil
}

// resolve is a path without links. Its last segments need not exist.
func resolve(p string) (string, error) {
	if real, err := filepath.EvalSymlinks(p); err == nil {
		return real, nil
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
