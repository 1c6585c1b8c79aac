package etcd

import (
	"context"
	"net/url"
	"slices"
	"strings"

	"github.com/croft-dev/croft/guard"
)

var _ guard.Host = (*Store)(nil)

// Guard opens the guard of a key in the store's own cluster: see [guard.Host].
func (s *Store) Guard(_ context.Context, target string) (guard.Guard, error) {
	u, err := url.Parse(target)
	if err != nil || u.Fragment == "" || u.Scheme != "etcd" && u.Scheme != "etcds" {
		return nil, guard.ErrElsewhere
	}
	// The same members with and without TLS are the same cluster.
	theirs, err := endpoints(u.Host, false)
	if err != nil {
		return nil, guard.ErrElsewhere
	}
	for _, own := range s.client.Endpoints() {
		if slices.Contains(theirs, "http://"+strings.TrimPrefix(strings.TrimPrefix(own, "https://"), "http://")) {
			return OpenGuard(s.client, prefixOf(u)+u.Fragment, nil)
		}
	}
	return nil, guard.ErrElsewhere
}

// prefixOf returns the prefix of all keys that a URL's path names.
func prefixOf(u *url.URL) string {
	prefix := strings.TrimPrefix(u.Path, "/")
	if prefix != "" && !strings.HasSuffix(prefix, "/") {
		prefix += "/"
	}
	return prefix
}
