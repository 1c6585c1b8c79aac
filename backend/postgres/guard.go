package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/clerk"
)

// GuardOptions of a guard. The zero value is good.
type GuardOptions struct {
	// Schema is Croft's own; default [DefaultSchema].
	Schema string
	// LockWait is how long a call waits for a writer that is inside the guard, before it fails with [guard.ErrBusy]; default 5 s.
	LockWait time.Duration
	// IdleLimit is how long a transaction that was admitted may do nothing before the server ends it, so that a writer which was stopped in the middle
	// keeps nobody out for ever; default 30 s. A limit that the transaction has already is left as it is.
	IdleLimit time.Duration
	// Target is the resource's name in messages, and in the leases of holders who name it; default one made from the database and the place. A guard from [NewSQLGuard] cannot
	// tell which server its database is on: set "postgres://host:port/database#NAME" where an operator's takeover is to raise the fence of a [FenceRow].
	Target string
}

// Guard decides in the caller's own transaction whether its writes still count. Its methods are safe for concurrent use.
//
//	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
//		if err := g.Admit(ctx, tx, stamp); err != nil {
//			return err // refused: nothing is written
//		}
//		_, err := tx.Exec(ctx, "UPDATE …")
//		return err
//	})
//
// Admit locks the mark until the transaction ends, so that check and write are one step, whatever the transaction writes between. A transaction that is rolled
// back has not moved the mark, and neither has one that is rolled back to a savepoint before Admit: what it writes after that is not guarded. At levels stricter than READ
// COMMITTED, Admit may fail as any statement there may (SQLSTATE 40001): run the whole transaction again.
type Guard struct {
	db     database
	place  *clerk.Place
	sql    *statements
	target string
	waits  string // as the server's settings are written
	idles  string
	setup  *setup // nil if the schema is the caller's to make
	named  bool   // by somebody else than the caller
	made   atomic.Bool
	close  func()
}

var _ guard.Guard = (*Guard)(nil)

// NewGuard makes the guard of a place, with the caller's pool for transactions of its own. o may be nil.
func NewGuard(pool *pgxpool.Pool, place Place, o *GuardOptions) (*Guard, error) {
	g, err := newGuard(pgxDatabase{pool}, place, o)
	if err != nil {
		return nil, err
	}
	g.setup = newSetup(pool, g.sql)
	return g, nil
}

// NewSQLGuard is NewGuard for programs that use database/sql, with any driver that numbers arguments as $1. The schema must have been made, by a store
// or with [Schema], for a [FenceRow] and for Rekey. Nobody else can open it by its target unless [GuardOptions].Target says where it is.
func NewSQLGuard(db *sql.DB, place Place, o *GuardOptions) (*Guard, error) {
	return newGuard(sqlDatabase{db}, place, o)
}

func newGuard(db database, place Place, o *GuardOptions) (*Guard, error) {
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
	p, err := place.statements(schema)
	if err != nil {
		return nil, err
	}
	g := &Guard{db: db, place: p, sql: newStatements(schema), target: o.Target, waits: setting(o.LockWait, 5*time.Second), idles: setting(o.IdleLimit, 30*time.Second)}
	if g.target == "" {
		g.target = targetOf(db.address(), schema, p)
	}
	return g, nil
}

// targetOf names a place so that others open the same one by it, or are refused.
func targetOf(u *url.URL, schema string, p *clerk.Place) string {
	query := u.Query()
	switch {
	case p.Enter == "": // not as a fragment: that would be a fence row of this name
		query.Set("columns", p.Name)
	case schema != DefaultSchema: // or others would open a row of the same name elsewhere
		query.Set("schema", schema)
	}
	u.RawQuery = query.Encode()
	if p.Enter == "" {
		return u.String()
	}
	return u.String() + "#" + fence.EscapeKey(p.Name)
}

// setting is a duration as the server's settings are written; zero there means none, so it is never less than a millisecond.
func setting(d, usual time.Duration) string {
	if d <= 0 {
		d = usual
	}
	return strconv.FormatInt(max(d.Milliseconds(), 1), 10) + "ms"
}

// Target names the resource, without a password.
func (g *Guard) Target() string { return g.target }

// Close lets go of the connections of a guard that was opened by its URL. The caller's own stay open.
func (g *Guard) Close() error {
	if g.close != nil {
		g.close()
	}
	return nil
}

// Admit locks the mark in the caller's transaction and decides whether its writes count. A refusal is one of package fence; the transaction
// can go on, but must not write what was refused. Any other error leaves the transaction to be rolled back: [guard.ErrBusy] if another writer did not leave in time.
func (g *Guard) Admit(ctx context.Context, tx pgx.Tx, stamp fence.Stamp) error {
	return g.admit(ctx, pgxSession{tx}, stamp)
}

// AdmitSQL is Admit for a transaction of database/sql.
func (g *Guard) AdmitSQL(ctx context.Context, tx *sql.Tx, stamp fence.Stamp) error {
	return g.admit(ctx, sqlSession{tx}, stamp)
}

func (g *Guard) admit(ctx context.Context, tx session, stamp fence.Stamp) error {
	if err := stamp.CheckNow(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return over(ctx)
	}
	if err := g.prepare(ctx, tx); err != nil {
		return g.explain(ctx, err)
	}
	_, err := g.decide(ctx, tx, func(m fence.Mark) (fence.Mark, error) { return m.Admit(stamp) })
	return err
}

// Mark is the newest stamp admitted. It waits for nobody.
func (g *Guard) Mark(ctx context.Context) (mark fence.Mark, err error) {
	err = g.own(ctx, g.place.Enter != "", func(tx session) error {
		mark, err = g.read(ctx, tx, g.place.Mark)
		return err
	})
	return mark, err
}

// Raise advances the mark without writing.
func (g *Guard) Raise(ctx context.Context, stamp fence.Stamp) (mark fence.Mark, err error) {
	if err := stamp.CheckNow(); err != nil {
		return fence.Mark{}, err
	}
	var refusal error
	err = g.own(ctx, g.place.Enter != "", func(tx session) error {
		mark, refusal = g.decide(ctx, tx, func(m fence.Mark) (fence.Mark, error) { return m.Raise(stamp) })
		return refusal
	})
	return mark, err
}

// Rekey moves the resource to another key, and keeps who did so and why in the table "rekeying".
func (g *Guard) Rekey(ctx context.Context, key, actor, note string) (fence.Mark, error) {
	if err := guard.CheckRekey(key, actor, note); err != nil {
		return fence.Mark{}, err
	}
	return g.move(ctx, actor, note, func(m fence.Mark) (fence.Mark, error) { return m.Rekey(key) })
}

// Reset takes back a mark that was made up, and keeps who did so as Rekey does.
func (g *Guard) Reset(ctx context.Context, floor fence.Token, actor, note string) (fence.Mark, error) {
	if err := guard.CheckReset(actor, note); err != nil {
		return fence.Mark{}, err
	}
	return g.move(ctx, actor, note, func(m fence.Mark) (fence.Mark, error) { return m.Reset(floor, time.Now()) })
}

// move moves the mark as a law says, and keeps who did so and why.
func (g *Guard) move(ctx context.Context, actor, note string, law func(fence.Mark) (fence.Mark, error)) (mark fence.Mark, err error) {
	err = g.own(ctx, true, func(tx session) error {
		var from fence.Mark
		mark, err = g.decide(ctx, tx, func(m fence.Mark) (fence.Mark, error) {
			from = m
			return law(m)
		})
		if err != nil {
			return err
		}
		_, err = tx.exec(ctx, g.sql.rekey, g.place.Name, from.Key, int64(from.Token), mark.Key, actor, note)
		return err
	})
	return mark, err
}

// Rekeyed tells of the last Rekey in one line, or nothing if there was none.
func (g *Guard) Rekeyed(ctx context.Context) (text string, err error) {
	err = g.own(ctx, true, func(tx session) error {
		var at time.Time
		var from, to, actor, note string
		var token int64
		err := tx.row(ctx, g.sql.rekeyed, []any{g.place.Name}, &at, &from, &token, &to, &actor, &note)
		if errors.Is(err, errNoRow) {
			return nil
		}
		text = fmt.Sprintf("%s: from %q (token %d) to %q by %s: %s", at.UTC().Format(time.RFC3339), from, token, to, actor, note)
		return err
	})
	return text, err
}
