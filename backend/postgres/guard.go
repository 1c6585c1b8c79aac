package postgres

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/fence/signed"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/clerk"
	"github.com/croft-dev/croft/internal/wait"
)

// GuardOptions of a guard. The zero value is good.
type GuardOptions struct {
	// Schema is Croft's own; default [DefaultSchema].
	Schema string
	// LockWait is how long a call waits for another writer inside the guard.
	// After that it fails with [guard.ErrBusy]. The default is 5 s.
	LockWait time.Duration
	// IdleLimit is how long an admitted transaction may do nothing before the
	// server ends it. So a writer that stops halfway does not keep others out
	// for ever. The default is 30 s. A limit that the transaction already has
	// stays as it is.
	IdleLimit time.Duration
	// Target is the resource's name in messages, and in the leases of holders
	// who name it. The default is made from the database and the resource. A
	// guard from [NewSQLGuard] does not know its server. Set
	// "postgres://host:port/database#NAME" there if an operator's takeover is
	// to raise the fence of a [FenceRow].
	Target string
	// Keys, if set, are the public keys of those who issue stamps. The guard
	// then admits only stamps that one of them has signed. Default: all stamps.
	Keys *signed.Keys
}

// Guard decides in the caller's own transaction whether its writes still count.
// Its methods are safe for concurrent use.
//
//	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
//		if err := g.Admit(ctx, tx, stamp); err != nil {
//			return err // refused: nothing is written
//		}
//		_, err := tx.Exec(ctx, "UPDATE …")
//		return err
//	})
//
// Admit locks the mark until the transaction ends. So check and write are one
// step, whatever the transaction writes in between. A rollback takes the mark
// back. So does a rollback to a savepoint before Admit: later writes of that
// transaction are not guarded. Above READ COMMITTED, Admit may fail with
// SQLSTATE 40001, as any statement may there. Then run the whole transaction
// again.
type Guard struct {
	db       database
	resource *clerk.Resource
	sql      *queries
	target   string
	keys     *signed.Keys
	waits    string // LockWait as a server setting
	idles    string // IdleLimit as a server setting
	setup    *setup // nil if the caller must make the schema
	named    bool   // somebody else wrote down the target, not the caller
	made     atomic.Bool
	close    func()
}

var _ guard.Guard = (*Guard)(nil)

// NewGuard makes the guard of a resource. It uses the caller's pool for
// transactions of its own. o may be nil.
func NewGuard(pool *pgxpool.Pool, resource Resource, o *GuardOptions) (*Guard, error) {
	g, err := newGuard(pgxDatabase{pool}, resource, o)
	if err != nil {
		return nil, err
	}
	g.setup = newSetup(pool, g.sql)
	return g, nil
}

// NewSQLGuard is NewGuard for programs that use database/sql, with any driver
// that numbers arguments as $1. A [FenceRow], and Rekey, need the schema: let a
// store or [Schema] make it first. Others can open the guard by its target only
// if [GuardOptions].Target says where it is.
func NewSQLGuard(db *sql.DB, resource Resource, o *GuardOptions) (*Guard, error) {
	return newGuard(sqlDatabase{db}, resource, o)
}

func newGuard(db database, resource Resource, o *GuardOptions) (*Guard, error) {
	if o == nil {
		o = &GuardOptions{}
	}
	schema := o.Schema
	if schema == "" {
		schema = DefaultSchema
	}
	if err := checkSchema(schema); err != nil {
		return nil, err
	}
	statements, err := resource.statements(schema)
	if err != nil {
		return nil, err
	}
	g := &Guard{
		db: db, resource: statements, sql: newQueries(schema), target: o.Target, keys: o.Keys,
		waits: setting(o.LockWait, 5*time.Second), idles: setting(o.IdleLimit, 30*time.Second),
	}
	if g.target == "" {
		g.target = targetOf(db.address(), schema, statements)
	}
	return g, nil
}

// targetOf names a resource. Others who open that name get the same resource,
// or an error.
func targetOf(u *url.URL, schema string, r *clerk.Resource) string {
	query := u.Query()
	switch {
	case r.Enter == "": // a fragment would name a fence row
		query.Set("columns", r.Name)
	case schema != DefaultSchema: // the default schema may have a row of that name
		query.Set("schema", schema)
	}
	u.RawQuery = query.Encode()
	if r.Enter == "" {
		return u.String()
	}
	return u.String() + "#" + fence.EscapeKey(r.Name)
}

// setting writes a duration as the server's settings do. It is at least a
// millisecond, because zero means no limit there.
func setting(d, usual time.Duration) string {
	if d <= 0 {
		d = usual
	}
	return strconv.FormatInt(max(d.Milliseconds(), 1), 10) + "ms"
}

// Target names the resource, without a password.
func (g *Guard) Target() string { return g.target }

// Close closes the connections of a guard that was opened by its URL. The
// caller's own pool stays open.
func (g *Guard) Close() error {
	if g.close != nil {
		g.close()
	}
	return nil
}

// Admit locks the mark in the caller's transaction and decides whether its
// writes count. A refusal is an error of package fence. Then the transaction
// can go on, but must not write to the resource. After any other error the
// caller must roll back. The error is [guard.ErrBusy] if another writer did not
// leave in time.
func (g *Guard) Admit(ctx context.Context, tx pgx.Tx, stamp fence.Stamp) error {
	return g.admit(ctx, pgxSession{tx}, stamp)
}

// AdmitSQL is Admit for a transaction of database/sql.
func (g *Guard) AdmitSQL(ctx context.Context, tx *sql.Tx, stamp fence.Stamp) error {
	return g.admit(ctx, sqlSession{tx}, stamp)
}

func (g *Guard) admit(ctx context.Context, tx session, stamp fence.Stamp) error {
	if err := g.keys.CheckNow(stamp); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return wait.Ended(ctx)
	}
	if err := g.prepare(ctx, tx); err != nil {
		return g.explain(ctx, err)
	}
	_, err := g.decide(ctx, tx, func(m fence.Mark) (fence.Mark, error) { return m.Admit(stamp) })
	return err
}

// Mark returns the newest stamp admitted. It waits for no lock.
func (g *Guard) Mark(ctx context.Context) (mark fence.Mark, err error) {
	err = g.own(ctx, g.resource.Enter != "", func(tx session) error {
		mark, err = g.read(ctx, tx, g.resource.Mark)
		return err
	})
	return mark, err
}

// Raise advances the mark without writing.
func (g *Guard) Raise(ctx context.Context, stamp fence.Stamp) (mark fence.Mark, err error) {
	if err := g.keys.CheckNow(stamp); err != nil {
		return fence.Mark{}, err
	}
	var refusal error
	err = g.own(ctx, g.resource.Enter != "", func(tx session) error {
		mark, refusal = g.decide(ctx, tx, func(m fence.Mark) (fence.Mark, error) { return m.Raise(stamp) })
		return refusal
	})
	return mark, err
}

// Rekey moves the resource to another key. The table "rekeying" keeps who did
// so and why.
func (g *Guard) Rekey(ctx context.Context, key, actor, note string) (fence.Mark, error) {
	if err := guard.CheckRekey(key, actor, note); err != nil {
		return fence.Mark{}, err
	}
	return g.move(ctx, actor, note, func(m fence.Mark) (fence.Mark, error) { return m.Rekey(key) })
}

// Reset replaces a forged mark. The table "rekeying" keeps who did so and why.
func (g *Guard) Reset(ctx context.Context, floor fence.Token, actor, note string) (fence.Mark, error) {
	if err := guard.CheckReset(actor, note); err != nil {
		return fence.Mark{}, err
	}
	return g.move(ctx, actor, note, func(m fence.Mark) (fence.Mark, error) { return m.Reset(floor, time.Now()) })
}

// move changes the mark as law says. The table "rekeying" keeps who did so and
// why.
func (g *Guard) move(
	ctx context.Context, actor, note string, law func(fence.Mark) (fence.Mark, error),
) (mark fence.Mark, err error) {
	err = g.own(ctx, true, func(tx session) error {
		var from fence.Mark
		mark, err = g.decide(ctx, tx, func(m fence.Mark) (fence.Mark, error) {
			from = m
			return law(m)
		})
		if err != nil {
			return err
		}
		_, err = tx.exec(ctx, g.sql.rekey, g.resource.Name, from.Key, int64(from.Token), mark.Key, actor, note)
		return err
	})
	return mark, err
}

// Rekeyed returns the last Rekey or Reset. It is zero if there was none.
func (g *Guard) Rekeyed(ctx context.Context) (r guard.Rekeyed, err error) {
	err = g.own(ctx, true, func(tx session) error {
		err := tx.row(ctx, g.sql.rekeyed, []any{g.resource.Name}, &r.At, &r.From, &r.Actor, &r.Note)
		if errors.Is(err, errNoRow) {
			return nil
		}
		r.At = r.At.UTC()
		return err
	})
	return r, err
}
