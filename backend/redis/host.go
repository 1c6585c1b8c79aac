package redis

import (
	"context"
	"net/url"
	"strconv"

	goredis "github.com/redis/go-redis/v9"

	"github.com/croft-dev/croft/guard"
)

var _ guard.Host = (*Store)(nil)

// Guard opens the guard of a key in the store's own database: see [guard.Host].
func (s *Store) Guard(_ context.Context, target string) (guard.Guard, error) {
	u, err := url.Parse(target)
	if err != nil || u.Fragment == "" || !sameDatabase(u, s.client) {
		return nil, guard.ErrElsewhere
	}
	return OpenGuard(s.client, u.Fragment, nil)
}

// sameDatabase reports whether a target is in the database of a client. It
// ignores user and password.
func sameDatabase(target *url.URL, client goredis.UniversalClient) bool {
	if target.Hostname() == "" || target.Scheme != "redis" && target.Scheme != "rediss" {
		return false
	}
	their := &url.URL{Scheme: target.Scheme, Host: target.Host, Fragment: target.Fragment}
	if target.Port() == "" {
		their.Host += ":6379"
	}
	if target.Query().Get("cluster") == "true" {
		their.RawQuery = "cluster=true"
	} else {
		db, err := strconv.Atoi(target.Path[min(1, len(target.Path)):])
		if err != nil && len(target.Path) > 1 {
			return false
		}
		their.Path = "/" + strconv.Itoa(db)
	}
	return their.String() == targetOf(client, target.Fragment)
}
