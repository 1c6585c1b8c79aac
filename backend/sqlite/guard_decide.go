package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"

	codes "modernc.org/sqlite/lib"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/wait"
)

// decide takes the write lock, applies law to the mark, and writes the mark if
// law has moved it.
func (g *Guard) decide(ctx context.Context, tx *sql.Tx, law func(fence.Mark) (fence.Mark, error)) (fence.Mark, error) {
	if ctx.Err() != nil {
		return fence.Mark{}, wait.Ended(ctx)
	}
	before, err := g.locked(ctx, tx)
	if err != nil {
		return fence.Mark{}, g.explain(ctx, err)
	}
	return g.resource.Decide(before, law, func(text string, args []any) error {
		done, err := tx.ExecContext(ctx, text, args...)
		if err != nil {
			return g.explain(ctx, err)
		}
		if n, err := done.RowsAffected(); err != nil || n != 1 {
			return g.explain(ctx, explained(fmt.Sprintf("its mark does not move (%d rows changed): look for a "+
				"trigger that suppresses the change, or a view instead of a table; roll the transaction back", n)))
		}
		return nil
	})
}

// locked takes the write lock and reads the mark. It makes a missing fence row.
func (g *Guard) locked(ctx context.Context, tx *sql.Tx) (fence.Mark, error) {
	if err := g.lock(ctx, tx); err != nil {
		return fence.Mark{}, err
	}
	mark, err := g.read(ctx, tx)
	if errors.Is(err, ErrNoSuchRow) && g.resource.Enter != "" {
		if _, err := tx.ExecContext(ctx, g.resource.Enter, g.resource.Args...); err != nil {
			return fence.Mark{}, err
		}
		return fence.Mark{}, nil
	}
	return mark, err
}

// lock waits at most g.waits for the write lock.
func (g *Guard) lock(ctx context.Context, tx *sql.Tx) error {
	limited, cancel := context.WithTimeout(ctx, g.waits)
	defer cancel()
	for try := 0; ; try++ {
		err := g.exec(limited, tx, g.resource.Lock)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return wait.Ended(ctx)
		case code(err) == codes.SQLITE_BUSY_SNAPSHOT:
			return fmt.Errorf("%w: this transaction has read before Admit, and another has written since; roll it "+
				"back and begin again, with Admit first: %w", guard.ErrBusy, err)
		case limited.Err() != nil || isBusy(err) && !pause(limited.Done(), try):
			// Without err: it may only say that limited has ended.
			return fmt.Errorf("%w for more than %s: %s; nothing was changed", guard.ErrBusy, g.waits, g.base.holder())
		case !isBusy(err):
			return err
		}
	}
}

// exec runs a statement. If Croft's tables are missing, it makes them in the
// same transaction, which takes the write lock by that, and tries again.
func (g *Guard) exec(ctx context.Context, tx *sql.Tx, text string, args ...any) error {
	_, err := tx.ExecContext(ctx, text, args...)
	if !lacksTable(err) {
		return err
	}
	if err := g.base.migrateFrom(ctx, tx, migrations(), false); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, text, args...)
	return err
}

// read reads the mark. Its error matches [ErrNoSuchRow] or [ErrDamaged] if that
// is the reason.
func (g *Guard) read(ctx context.Context, from session) (fence.Mark, error) {
	rows, err := from.QueryContext(ctx, g.resource.Mark, g.resource.Args...)
	if err != nil {
		return fence.Mark{}, err
	}
	defer rows.Close()
	var key, grant, seq string
	var token int64
	count := 0
	for ; rows.Next(); count++ {
		if err := rows.Scan(&key, &token, &grant, &seq); err != nil {
			return fence.Mark{}, fmt.Errorf("guard %s: %w: %w", g.target, ErrDamaged, err)
		}
	}
	switch err := rows.Err(); {
	case err != nil:
		return fence.Mark{}, err
	case count == 0:
		return fence.Mark{}, fmt.Errorf("guard %s: %w; insert the row before it is guarded", g.target, ErrNoSuchRow)
	case count > 1:
		return fence.Mark{}, fmt.Errorf("guard %s: %w but %d; make Where name one row", g.target, ErrNoSuchRow, count)
	}
	number, err := strconv.ParseUint(seq, 10, 64)
	if err != nil {
		return fence.Mark{}, fmt.Errorf("guard %s: %w: its sequence is %q; its column must be TEXT",
			g.target, ErrDamaged, seq)
	}
	mark := fence.Mark{Key: key, Token: fence.Token(token), Grant: fence.Grant(grant), Seq: number}
	if err := mark.Check(); err != nil {
		return fence.Mark{}, fmt.Errorf("guard %s: %w: %s; once no old writer lives, set its four columns to NULL "+
			"and raise the fence with the present owner's stamp", g.target, ErrDamaged, err.Error())
	}
	return mark, nil
}

// own calls do in a transaction of the guard's own and commits it.
func (g *Guard) own(ctx context.Context, do func(*sql.Tx) error) error {
	tx, err := g.base.db.BeginTx(ctx, nil)
	if err != nil {
		return g.explain(ctx, err)
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	if err := do(tx); err != nil {
		return g.explain(ctx, err)
	}
	if err := tx.Commit(); err != nil {
		return g.explain(ctx, err)
	}
	if g.base.file != "" && g.base.moved() {
		return g.explain(ctx, explained("the file was moved or removed since the guard was opened: the mark that "+
			"others see has not moved; open it again, and the database if it is yours"))
	}
	return nil
}

// explain adds the guard's name and advice to an error. It leaves refusals, bad
// input and errors that it has explained before as they are.
func (g *Guard) explain(ctx context.Context, err error) error {
	var stale *fence.StaleError
	var refused *fence.RefusedError
	switch {
	case err == nil, errors.As(err, &stale), errors.As(err, &refused), errors.Is(err, fence.ErrInvalid),
		errors.Is(err, ErrNoSuchRow), errors.Is(err, ErrDamaged), errors.Is(err, errGuard):
		return err
	case ctx.Err() != nil:
		return wait.Ended(ctx)
	case errors.Is(err, guard.ErrBusy):
		return fmt.Errorf("guard %s: %w", g.target, marked{err})
	case isBusy(err):
		return fmt.Errorf("guard %s: %w: %s; nothing was changed: %w",
			g.target, guard.ErrBusy, g.base.holder(), marked{err})
	}
	return fmt.Errorf("guard %s: %w", g.target, marked{g.base.explain(ctx, err)})
}

// errGuard is matched by an error that explain has given the guard's name.
var errGuard = errors.New("named")

type marked struct{ error }

func (m marked) Unwrap() error        { return m.error }
func (m marked) Is(target error) bool { return target == errGuard }
