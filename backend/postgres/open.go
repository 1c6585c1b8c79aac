package postgres

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/store"
)

func init() {
	store.Register("postgres", openURL)
	store.Register("postgresql", openURL)
	guard.Register("postgres", openGuard)
	guard.Register("postgresql", openGuard)
}

// openURL opens "postgres://user:password@host:port/database". It takes schema,
// retention and lock_wait, besides the driver's own parameters (sslmode,
// target_session_attrs, pool_max_conns …). It sends nothing: the first call
// does.
func openURL(ctx context.Context, u *url.URL) (store.Store, error) {
	st, err := Open(ctx, u.String())
	if err != nil {
		return nil, err
	}
	return st, nil
}

// Open opens the store that a URL names, with a pool of its own. Its errors do
// not repeat the URL's password.
func Open(ctx context.Context, raw string) (*Store, error) {
	a, err := parse("store", raw)
	if err != nil {
		return nil, err
	}
	if a.fragment != "" {
		return nil, a.bad("it has a fragment, which names a guard and no store")
	}
	pool, err := a.connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", store.Redact(raw), err)
	}
	s := New(pool, &Options{Schema: a.schema, Retention: a.retention, LockWait: a.lockWait})
	s.ownsPool = true
	return s, nil
}

// openGuard opens the fence row that "postgres://user@host/database#NAME"
// names.
func openGuard(ctx context.Context, u *url.URL) (guard.Guard, error) {
	a, err := parse("target", u.String())
	if err != nil {
		return nil, err
	}
	if a.fragment == "" {
		return nil, a.bad("it does not say which fence row: add #NAME")
	}
	// The defaults here may differ from those of the program that named the
	// target. A fence at another server would keep nobody out.
	if !a.server || !a.database {
		return nil, a.bad("it does not say which server and database; " +
			"if it is the target of a guard for database/sql, which cannot tell, set GuardOptions.Target there")
	}
	pool, err := a.connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("target %s: %w", store.Redact(a.raw), err)
	}
	g, err := NewGuard(pool, FenceRow{Name: a.fragment}, &GuardOptions{Schema: a.schema, LockWait: a.lockWait})
	if err != nil {
		pool.Close()
		return nil, err
	}
	if guard.IsNamed(ctx) {
		g.setup, g.named = nil, true // make no schema in a database that somebody else chose
	}
	g.close = sync.OnceFunc(pool.Close)
	return g, nil
}

// address is a parsed URL. config has the driver's parameters, the other fields
// have Croft's own.
type address struct {
	kind, raw           string
	schema, fragment    string
	server, database    bool // the URL names them
	retention, lockWait time.Duration
	config              *pgxpool.Config
}

func (a *address) bad(why string) error {
	form := "postgres://user@host:5432/database?sslmode=verify-full, with schema, retention or lock_wait if need be"
	if a.kind == "target" {
		form = "postgres://user@host:5432/database?sslmode=verify-full#NAME, with schema or lock_wait if need be"
	}
	return fmt.Errorf("%w %s URL %q: %s; write %s", fence.ErrInvalid, a.kind, store.Redact(a.raw), why, form)
}

// connect makes a pool. Its sessions look up names in the server's own schema.
// So another role that may create objects in the database cannot have them run
// here.
func (a *address) connect(ctx context.Context) (*pgxpool.Pool, error) {
	a.config.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, queryTexts().Must("pin"), pgx.QueryExecModeExec, int32(c.PgConn().PID()))
		return err
	}
	return pgxpool.NewWithConfig(ctx, a.config)
}

func parse(kind, raw string) (*address, error) {
	a := &address{kind: kind, raw: raw}
	u, err := url.Parse(raw)
	if err != nil {
		return nil, a.bad("it cannot be read")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, a.bad("its query cannot be read")
	}
	if query.Has("columns") {
		return nil, fmt.Errorf("%w %s URL %q: it names columns in a table, "+
			"which only a program that has the same Columns can open; raise the fence from there",
			fence.ErrInvalid, kind, store.Redact(raw))
	}
	service := query.Get("service") != ""
	a.server = u.Hostname() != "" || query.Get("host") != "" || service
	a.database = strings.Trim(u.Path, "/") != "" || query.Get("dbname") != "" || query.Get("database") != "" || service
	for name, into := range map[string]*time.Duration{"retention": &a.retention, "lock_wait": &a.lockWait} {
		if text := query.Get(name); text != "" {
			if *into, err = time.ParseDuration(text); err != nil || *into < time.Millisecond {
				return nil, a.bad(fmt.Sprintf("%s %q is not a duration of a millisecond or more", name, text))
			}
		}
		query.Del(name)
	}
	if a.schema = query.Get("schema"); a.schema != "" {
		if err := checkSchema(a.schema); err != nil {
			return nil, err
		}
	}
	query.Del("schema")
	a.fragment, u.Fragment, u.RawFragment = u.Fragment, "", ""
	u.RawQuery = query.Encode()
	if a.config, err = pgxpool.ParseConfig(u.String()); err != nil {
		return nil, a.bad("the driver does not take it") // its own error may hold the password
	}
	return a, nil
}
