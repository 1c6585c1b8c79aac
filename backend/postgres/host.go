package postgres

import (
	"cmp"
	"context"
	"net"
	"net/url"
	"time"

	"github.com/croft-dev/croft/guard"
)

var (
	_ guard.Host = (*Store)(nil)
	_ guard.Host = (*Ledger)(nil)
)

// Guard opens the guard of a fence row in the store's own database and schema:
// see [guard.Host]. It opens no guard in another schema, because anybody may
// own the tables there.
func (s *Store) Guard(_ context.Context, target string) (guard.Guard, error) {
	return s.guard(target, s.lockWait)
}

// Guard opens the guard of a fence row in the ledger's own database and schema,
// as [Store.Guard] does.
func (l *Ledger) Guard(_ context.Context, target string) (guard.Guard, error) {
	return l.guard(target, l.lockWait)
}

func (s *setup) guard(target string, lockWait time.Duration) (guard.Guard, error) {
	u, err := url.Parse(target)
	if err != nil || u.Fragment == "" || cmp.Or(u.Query().Get("schema"), DefaultSchema) != s.sql.schema {
		return nil, guard.ErrElsewhere
	}
	if own := (pgxDatabase{s.pool}).address(); own.String() != addressIn(u) {
		return nil, guard.ErrElsewhere
	}
	return NewGuard(s.pool, FenceRow{Name: u.Fragment}, &GuardOptions{Schema: s.sql.schema, LockWait: lockWait})
}

// addressIn returns the server and the database in a target, written as address
// does. It reads no files and asks no server, as the driver's own parser may.
func addressIn(target *url.URL) string {
	if target.Scheme != "postgres" && target.Scheme != "postgresql" {
		return ""
	}
	u, query := &url.URL{Scheme: "postgres", Path: target.Path}, target.Query()
	if target.Host != "" {
		u.Host = net.JoinHostPort(target.Hostname(), cmp.Or(target.Port(), "5432"))
	} else {
		u.RawQuery = url.Values{"host": {query.Get("host")}, "port": {cmp.Or(query.Get("port"), "5432")}}.Encode()
	}
	return u.String()
}
