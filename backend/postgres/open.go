package postgres

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
)

func init() {
	store.Register("postgres", openURL)
	store.Register("postgresql", openURL)
}

// openURL opens "postgres://user:password@host:port/database". Besides the server's own parameters (sslmode, target_session_attrs, pool_max_conns …) it takes
// schema, retention and lock_wait. Nothing is sent until the store is asked something.
func openURL(ctx context.Context, u *url.URL) (store.Store, error) {
	st, err := Open(ctx, u.String())
	if err != nil {
		return nil, err
	}
	return st, nil
}

// Open opens the store that a URL names, with a pool of its own. Its errors do not repeat the URL's password.
func Open(ctx context.Context, raw string) (*Store, error) {
	bad := func(why string) (*Store, error) {
		return nil, fmt.Errorf("%w store URL %q: %s; write postgres://user@host:5432/database?sslmode=require, with schema, retention or lock_wait if need be", fence.ErrInvalid, store.Redact(raw), why)
	}
	u, err := url.Parse(raw)
	if err != nil {
		return bad("it cannot be read")
	}
	if u.Fragment != "" {
		return bad("it has a fragment")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return bad("its query cannot be read")
	}
	o := &Options{Schema: query.Get("schema")}
	for name, into := range map[string]*time.Duration{"retention": &o.Retention, "lock_wait": &o.LockWait} {
		if text := query.Get(name); text != "" {
			if *into, err = time.ParseDuration(text); err != nil || *into < time.Millisecond {
				return bad(fmt.Sprintf("%s %q is not a positive duration", name, text))
			}
		}
	}
	if o.Schema != "" {
		if err := checkSchema(o.Schema); err != nil {
			return nil, err
		}
	}
	for _, name := range []string{"schema", "retention", "lock_wait"} {
		query.Del(name)
	}
	u.RawQuery = query.Encode()
	config, err := pgxpool.ParseConfig(u.String())
	if err != nil {
		return bad("the driver does not take it")
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", store.Redact(raw), err)
	}
	s := New(pool, o)
	s.own = true
	return s, nil
}
