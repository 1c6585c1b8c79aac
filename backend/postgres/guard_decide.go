package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/wait"
)

// decide locks the mark and applies law to it, one of package fence's rules. If
// law moves the mark, decide writes the new one.
func (g *Guard) decide(ctx context.Context, tx session, law func(fence.Mark) (fence.Mark, error)) (fence.Mark, error) {
	before, err := g.lock(ctx, tx)
	if err != nil {
		return fence.Mark{}, g.explain(ctx, err)
	}
	return g.resource.Decide(before, law, func(text string, args []any) error {
		moved, err := tx.exec(ctx, text, args...)
		if err != nil {
			return g.explain(ctx, err)
		}
		if moved != 1 {
			return fmt.Errorf("guard %s: %w: %d rows changed when the mark moved; "+
				"roll the transaction back, and see whether a trigger, a rule or row-level security "+
				"keeps this role from updating the row", g.target, ErrNoSuchRow, moved)
		}
		return nil
	})
}

// lock waits for the mark's row, for a bounded time, and reads it. Then it
// restores the transaction's lock_timeout. The limit on idleness stays, so that
// a writer that stops here for good does not keep the row for good.
func (g *Guard) lock(ctx context.Context, tx session) (fence.Mark, error) {
	var usual, set, idle string
	if err := tx.row(ctx, g.sql.limit, []any{g.waits, g.idles}, &usual, &set, &idle); err != nil {
		return fence.Mark{}, err
	}
	mark, err := g.read(ctx, tx, g.resource.Lock)
	if errors.Is(err, ErrNoSuchRow) && g.resource.Enter != "" {
		if _, err := tx.exec(ctx, g.resource.Enter, g.resource.Args...); err != nil {
			return fence.Mark{}, err
		}
		mark, err = g.read(ctx, tx, g.resource.Lock)
	}
	if err != nil {
		return fence.Mark{}, err
	}
	return mark, tx.row(ctx, g.sql.unlimit, []any{usual}, &set)
}

// read reads the mark with the statement text. A fence row that is not there
// yet has no mark.
func (g *Guard) read(ctx context.Context, tx session, text string) (fence.Mark, error) {
	var key, grant, seq string
	var token int64
	err := tx.row(ctx, text, g.resource.Args, &key, &token, &grant, &seq)
	if errors.Is(err, errNoRow) {
		if g.resource.Enter != "" && text == g.resource.Mark {
			return fence.Mark{}, nil
		}
		return fence.Mark{}, fmt.Errorf("guard %s: %w; insert the row before it is guarded", g.target, ErrNoSuchRow)
	}
	if errors.Is(err, errManyRows) {
		return fence.Mark{}, fmt.Errorf("guard %s: %w but several; make Where name one row", g.target, ErrNoSuchRow)
	}
	if err != nil {
		return fence.Mark{}, err
	}
	number, err := strconv.ParseUint(seq, 10, 64)
	if err != nil {
		return fence.Mark{}, fmt.Errorf("guard %s: %w: its sequence is %q", g.target, ErrDamaged, seq)
	}
	mark := fence.Mark{Key: key, Token: fence.Token(token), Grant: fence.Grant(grant), Seq: number}
	if err := mark.Check(); err != nil {
		return fence.Mark{}, fmt.Errorf("guard %s: %w: %s; once no old writer lives, set its four columns to NULL "+
			"and raise the fence with the present owner's stamp", g.target, ErrDamaged, err.Error())
	}
	return mark, nil
}

// own runs do in a transaction of the guard's own. If do needs Croft's own
// tables and they are missing, own makes the schema and runs do once more.
func (g *Guard) own(ctx context.Context, needsSchema bool, do func(session) error) error {
	if ctx.Err() != nil {
		return wait.Ended(ctx)
	}
	if g.named {
		then := do
		do = func(tx session) error {
			if err := g.trust(ctx, tx); err != nil {
				return err
			}
			return then(tx)
		}
	}
	err := g.db.within(ctx, do)
	if lacksSchema(err) && needsSchema && g.setup != nil {
		if err := g.setup.migrate(ctx); err != nil {
			return g.explain(ctx, fmt.Errorf("making the schema %s: %w", g.sql.schema, err))
		}
		err = g.db.within(ctx, do)
	}
	return g.explain(ctx, err)
}

// trust refuses a table whose use can run another role's code. The holder of a
// lease named this table, and an operator uses it, perhaps as a superuser.
func (g *Guard) trust(ctx context.Context, tx session) error {
	if _, err := tx.exec(ctx, g.sql.lock); err != nil {
		return err
	}
	var altered bool
	var who string
	if err := tx.row(ctx, g.sql.trusted, []any{g.resource.Table}, &altered, &who); err != nil {
		return err
	}
	if altered {
		return fmt.Errorf("%w: it is not as Croft makes it; "+
			"look at its rules, checks, policies, defaults, indexes, types and inheritance, "+
			"or if you trust the target, use croft guard raise", errCode)
	}
	if who != "" {
		return fmt.Errorf("%w: the role %q owns it, its schema or a trigger's function; "+
			"if you trust the target, allow it as that role: "+
			"--raise postgres://%s@…, or use croft guard raise", errCode, who, url.PathEscape(who))
	}
	return nil
}

var errCode = errors.New("another role may have code run by whoever uses the table there; nothing was read or changed")

// prepare makes the schema if it is missing, before that can fail the caller's
// transaction. It looks in the transaction itself: a caller that waits for a
// second connection of its pool while it has one may wait for ever. prepare
// takes a second connection only to make the schema, and waits for it at most
// longestSetup.
func (g *Guard) prepare(ctx context.Context, tx session) error {
	if g.made.Load() || g.setup == nil || g.resource.Enter == "" {
		return nil
	}
	var there bool
	if err := tx.row(ctx, g.sql.there, []any{g.resource.Table}, &there); err != nil {
		return err
	}
	if !there {
		bounded, cancel := context.WithTimeoutCause(ctx, longestSetup, errSetup)
		defer cancel()
		if err := g.setup.migrate(bounded); err != nil {
			if bounded.Err() != nil && ctx.Err() == nil {
				err = errSetup
			}
			return fmt.Errorf("making the schema %s: %w", g.sql.schema, err)
		}
	}
	g.made.Store(true)
	return nil
}

// longestSetup bounds the wait for a connection and the making of the schema on
// it.
const longestSetup = 10 * time.Second

var errSetup = errors.New("there was no connection to make it on; " +
	"give the pool more than one, or make the schema first: croft schema postgres")

// explain leaves refusals as they are. A lock that was not granted in time
// becomes ErrBusy, with the transaction that probably has it.
func (g *Guard) explain(ctx context.Context, err error) error {
	var stale *fence.StaleError
	var refused *fence.RefusedError
	switch {
	case err == nil, errors.As(err, &stale), errors.As(err, &refused),
		errors.Is(err, fence.ErrInvalid), errors.Is(err, guard.ErrBusy),
		errors.Is(err, ErrNoSuchRow), errors.Is(err, ErrDamaged):
		return err
	case ctx.Err() != nil:
		return wait.Ended(ctx)
	case hasCode(err, lockTimeout):
		return fmt.Errorf("guard %s: %w: %s; nothing was changed: %w", g.target, guard.ErrBusy, g.holder(ctx), err)
	case errors.Is(err, errSetup), errors.Is(err, errCode):
		return fmt.Errorf("guard %s: %w", g.target, err)
	case hasCode(err, "42P01") && (g.setup == nil || g.resource.Enter == ""):
		return fmt.Errorf("guard %s: %w; if it is Croft's own table, make the schema first: croft schema postgres",
			g.target, err)
	}
	return fmt.Errorf("guard %s: %w", g.target, explain(ctx, err))
}

// holder describes the transaction that is probably inside the guard.
func (g *Guard) holder(ctx context.Context) string {
	const unknown = "another transaction has the mark's row locked; look for it in pg_stat_activity"
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	text := unknown
	_ = g.db.within(ctx, func(tx session) error {
		var pid, millis int64
		var name, state string
		if err := tx.row(ctx, g.sql.holder, []any{g.resource.Table}, &pid, &name, &state, &millis); err != nil {
			return err
		}
		text = fmt.Sprintf("server process %d (%s, %s) has been in a transaction for %s; "+
			"if it is stopped, end it with SELECT pg_terminate_backend(%d)",
			pid, strconv.Quote(name), state, time.Duration(millis)*time.Millisecond, pid)
		return nil
	})
	return text
}
