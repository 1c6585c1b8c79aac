package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/croft-dev/croft/internal/wait"
	"github.com/croft-dev/croft/store"
)

// ErrClosed is the cause of every error of a store that has been closed.
var ErrClosed = errors.New("the store is closed; open it again")

// explain adds the meaning of an error and advice. If ctx has ended, it
// returns that instead.
func explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return wait.Ended(ctx)
	}
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return fmt.Errorf("postgres: %w; see whether the server runs and can be reached", err)
	}
	advice := "look at the server's log"
	switch pg.Code {
	case lockTimeout:
		advice = "another transaction has had this row locked for too long; " +
			"find it in pg_stat_activity (idle in transaction?) and end it"
	case "57014":
		advice = "the server's statement_timeout ended it; give the role a longer one"
	case "42501":
		advice = "the role lacks a right; let a DBA run `croft schema postgres` and grant what its last lines say. " +
			"If an older version has made the schema, let the schema's owner run `croft ls` once, " +
			"which brings it up to date"
	case readOnly:
		advice = "this server is read-only, probably a standby: " +
			"name the primary, or add target_session_attrs=read-write to the URL"
	case "53300", "53400":
		advice = "the server has no connection to spare; raise max_connections or use smaller pools"
	case serialization:
		advice = "others have changed the same rows: run the transaction again. " +
			"Croft's own need no more than READ COMMITTED: " +
			"ALTER ROLE … SET default_transaction_isolation = 'read committed'"
	case deadlock:
		advice = "another transaction locks the same rows in another order: run it again"
	case "26000", "42P05":
		advice = "there is a transaction pooler in between, which loses prepared statements: " +
			"add default_query_exec_mode=exec to the URL"
	case "3F000", "42P01", "42883", "42703":
		advice = "the schema is not as this program makes it: " +
			"see whether somebody has changed it by hand, or drop it if it may be forgotten"
	case "57P01", "57P02", "57P03":
		advice = "the server is shutting down or starting; ask again"
	case "28000", "28P01":
		advice = "the server refuses this user or password; set them right in the URL"
	case "3D000":
		advice = "create the database, or name another in the URL"
	case "53100", "53200":
		advice = "the server is out of disk or memory"
	case "22021", "22P05":
		advice = "the database cannot hold this text; use one with the encoding UTF8"
	}
	return fmt.Errorf("postgres: %w; %s", err, advice)
}

// explainStore is explain for a statement of a store. It tells faults from
// unknown outcomes.
func explainStore(ctx context.Context, err error) error {
	var pg *pgconn.PgError
	unsent := errors.As(err, new(*pgconn.ConnectError))
	switch {
	case ctx.Err() != nil:
		return explain(ctx, err)
	// After an ERROR the server has rolled the statement back. A PANIC proves
	// less: if the disk is full when the server writes its log, the commit may
	// be in the log already, and takes effect when the server starts again.
	case errors.As(err, &pg) && faults[pg.Code] && (unsent || pg.SeverityUnlocalized == "ERROR"):
		return store.Fault(explain(ctx, err))
	case unsent:
		return store.Unreachable(explain(ctx, err))
	}
	return explain(ctx, err)
}

// explainWork is explain for a call of a ledger. If no connection was made,
// nothing was sent, and it tells a fault as explainStore does.
func explainWork(ctx context.Context, err error) error {
	if errors.As(err, new(*pgconn.ConnectError)) {
		return explainStore(ctx, err)
	}
	return explain(ctx, err)
}

// faults are the errors that stay until somebody acts.
var faults = map[string]bool{
	"42501": true, "28000": true, "28P01": true, "3D000": true, "53100": true,
	"3F000": true, "42P01": true, "42883": true, "42703": true, "22021": true, "22P05": true,
}

// The SQLSTATE codes that the code acts on.
const (
	lockTimeout   = "55P03" // the wait for a lock took too long
	deadlock      = "40P01"
	serialization = "40001" // above READ COMMITTED: another transaction was first
	readOnly      = "25006"
)

// hasCode reports whether err is the server's error with that code, from any
// driver.
func hasCode(err error, code string) bool {
	if err == nil {
		return false // the usual case, and errors.As costs time
	}
	var coded interface{ SQLState() string }
	return errors.As(err, &coded) && coded.SQLState() == code
}
