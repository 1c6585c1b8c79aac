package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/fence/signed"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/clerk"
)

// GuardOptions of a guard. The zero value is good.
type GuardOptions struct {
	// LockWait is how long a call waits for another writer before it fails with
	// [guard.ErrBusy]; default 5 s. A longer busy_timeout of the caller's
	// connection does not lengthen it.
	LockWait time.Duration
	// Target is the resource's name in messages, and in leases that name it.
	// The default is made from the file and the resource.
	Target string
	// Keys, if set, are the public keys of those who issue stamps. The guard
	// then admits only stamps that one of them has signed. Default: all stamps.
	Keys *signed.Keys
}

// Guard decides in the caller's own transaction whether its writes still count.
// Its methods are safe for concurrent use.
//
//	tx, err := db.BeginTx(ctx, nil)
//	…
//	defer tx.Rollback()
//	if err := g.Admit(ctx, tx, stamp); err != nil {
//		return err // refused: nothing is written
//	}
//	if _, err := tx.ExecContext(ctx, "UPDATE …"); err != nil {
//		return err
//	}
//	return tx.Commit()
//
// Admit takes the write lock first and then reads the mark. The transaction
// keeps the lock until it ends, so no other writer comes between the check and
// the writes.
//
// Call Admit before any other statement of the transaction. A transaction that
// has read before may have to begin again. If the transaction is rolled back,
// the mark does not move.
type Guard struct {
	base     *base
	resource *clerk.Resource
	target   string
	keys     *signed.Keys
	waits    time.Duration
	close    func() error
}

var _ guard.Guard = (*Guard)(nil)

// NewGuard makes the guard of a resource in the caller's database, which must
// have been opened with modernc.org/sqlite. Missing tables of [Schema] are made
// when they are first needed, in the same transaction. o may be nil.
func NewGuard(db *sql.DB, resource Resource, o *GuardOptions) (*Guard, error) {
	if o == nil {
		o = &GuardOptions{}
	}
	statements, err := resource.statements()
	if err != nil {
		return nil, err
	}
	g := &Guard{base: &base{db: db}, resource: statements, target: o.Target, waits: o.LockWait, keys: o.Keys}
	if g.waits < time.Millisecond {
		g.waits = 5 * time.Second
	}
	ctx, cancel := context.WithTimeout(context.Background(), g.waits)
	defer cancel()
	// The file is part of the guard's name.
	if err := retryBusy(ctx, g.waits, func() error { return g.base.find(ctx) }); err != nil {
		return nil, fmt.Errorf("guard %s: %w", statements.Name, g.base.explain(ctx, err))
	}
	if g.target == "" {
		g.target = targetOf(g.base.file, statements.Name)
		if statements.Enter == "" { // Columns: a fragment would name a fence row instead
			g.target = fileURL(g.base.file) + "?" + url.Values{"columns": {statements.Name}}.Encode()
		}
	}
	return g, nil
}

// openGuard opens the fence row that "sqlite:///path/to/file.db#NAME" names.
// It does not make the file: the guarded data must already be there.
func openGuard(_ context.Context, u *url.URL) (guard.Guard, error) {
	a, err := parse("target", u)
	if err != nil {
		return nil, err
	}
	if u.Fragment == "" {
		return nil, a.bad("it does not say which fence row: add #NAME")
	}
	path, err := cleanPath(pathOf(u))
	if err != nil {
		return nil, err
	}
	file, _, err := locate(path, &a.options, false)
	if err != nil {
		return nil, err
	}
	db, err := connections(file, time.Second)
	if err != nil {
		return nil, err
	}
	o := &GuardOptions{LockWait: a.options.LockWait, Target: targetOf(file, u.Fragment)}
	g, err := NewGuard(db, FenceRow{Name: u.Fragment}, o)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	g.base.path, g.close = path, sync.OnceValue(db.Close)
	return g, nil
}

// targetOf returns the URL of a fence row in a file. openGuard opens it.
func targetOf(file, name string) string { return fileURL(file) + "#" + fence.EscapeKey(name) }

func fileURL(file string) string {
	u := url.URL{Scheme: "sqlite", Path: filepath.ToSlash(file)}
	if !strings.HasPrefix(u.Path, "/") {
		u.Path = "/" + u.Path
	}
	return "sqlite://" + u.EscapedPath()
}

// Target names the resource.
func (g *Guard) Target() string { return g.target }

// Close closes the connections of a guard that was opened by its URL. The
// caller's own database stays open.
func (g *Guard) Close() error {
	if g.close != nil {
		return g.close()
	}
	return nil
}

// Admit takes the write lock in the caller's transaction and decides whether
// its writes count. A refusal is an error of package fence: the transaction can
// go on, but must not write to the resource. After any other error the caller
// must roll the transaction back. The error matches [guard.ErrBusy] if another
// writer did not leave in time.
func (g *Guard) Admit(ctx context.Context, tx *sql.Tx, stamp fence.Stamp) error {
	if err := g.keys.CheckNow(stamp); err != nil {
		return err
	}
	_, err := g.decide(ctx, tx, func(m fence.Mark) (fence.Mark, error) { return m.Admit(stamp) })
	return err
}

// Mark returns the newest stamp that was admitted. It waits for no writer, and
// makes no table and no row.
func (g *Guard) Mark(ctx context.Context) (fence.Mark, error) {
	mark, err := g.read(ctx, g.base.db)
	if g.resource.Enter != "" && (lacksTable(err) || errors.Is(err, ErrNoSuchRow)) {
		return fence.Mark{}, nil // nobody has written yet
	}
	return mark, g.explain(ctx, err)
}

// Raise advances the mark without writing.
func (g *Guard) Raise(ctx context.Context, stamp fence.Stamp) (mark fence.Mark, err error) {
	if err := g.keys.CheckNow(stamp); err != nil {
		return fence.Mark{}, err
	}
	err = g.own(ctx, func(tx *sql.Tx) error {
		mark, err = g.decide(ctx, tx, func(m fence.Mark) (fence.Mark, error) { return m.Raise(stamp) })
		return err
	})
	return mark, err
}

// Rekey moves the resource to another key. The table croft_rekeying keeps who
// did so and why.
func (g *Guard) Rekey(ctx context.Context, key, actor, note string) (fence.Mark, error) {
	if err := guard.CheckRekey(key, actor, note); err != nil {
		return fence.Mark{}, err
	}
	return g.move(ctx, actor, note, func(m fence.Mark) (fence.Mark, error) { return m.Rekey(key) })
}

// Reset lowers a mark whose token was made up, by [fence.Mark.Reset]. The table
// croft_rekeying keeps who did so and why.
func (g *Guard) Reset(ctx context.Context, floor fence.Token, actor, note string) (fence.Mark, error) {
	if err := guard.CheckReset(actor, note); err != nil {
		return fence.Mark{}, err
	}
	return g.move(ctx, actor, note, func(m fence.Mark) (fence.Mark, error) { return m.Reset(floor, time.Now()) })
}

// move moves the mark as law decides, and writes who did so and why.
func (g *Guard) move(
	ctx context.Context, actor, note string, law func(fence.Mark) (fence.Mark, error),
) (mark fence.Mark, err error) {
	err = g.own(ctx, func(tx *sql.Tx) error {
		var from fence.Mark
		mark, err = g.decide(ctx, tx, func(m fence.Mark) (fence.Mark, error) {
			from = m
			return law(m)
		})
		if err != nil {
			return err
		}
		return g.exec(ctx, tx, sqlRekey, g.resource.Name, from.Key, int64(from.Token), mark.Key, actor, note)
	})
	return mark, err
}

// Rekeyed returns the last Rekey or Reset. It is zero if there was none.
func (g *Guard) Rekeyed(ctx context.Context) (r guard.Rekeyed, err error) {
	var at string
	err = g.base.db.QueryRowContext(ctx, sqlRekeyed, g.resource.Name).Scan(&at, &r.From, &r.Actor, &r.Note)
	if errors.Is(err, sql.ErrNoRows) || lacksTable(err) {
		return guard.Rekeyed{}, nil
	}
	if err == nil {
		r.At, err = time.Parse(time.RFC3339, at)
	}
	return r, g.explain(ctx, err)
}
