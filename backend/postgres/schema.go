package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/croft-dev/croft/internal/wait"
)

// Schema returns the SQL that makes everything the store, the guards and the
// ledger need, for use with psql. Where the schema exists already, the SQL
// fails and changes nothing. Its last lines name the rights of a role that only
// uses the schema, and say how the owner makes changed functions again.
func Schema() string {
	const schema = DefaultSchema
	s := newQueries(schema)
	var b strings.Builder
	b.WriteString("-- Everything that Croft keeps in PostgreSQL. " +
		"Run it once, as a role that may create a schema:\n" +
		"--   croft schema postgres | psql -v ON_ERROR_STOP=1 DATABASE\n\n" +
		"BEGIN;\nSET LOCAL search_path = pg_catalog, pg_temp;\n" +
		"SET LOCAL client_min_messages = warning; -- no notices from DROP … IF EXISTS\n\n")
	b.WriteString(s.prepare + "\n")
	for _, m := range migrations(schema) {
		fmt.Fprintf(&b, "\n-- %s\n\n%s\n\nINSERT INTO %s.migration (version, name) VALUES (%d, '%s');\n",
			m.name, m.text, schema, m.version, m.name)
	}
	fmt.Fprintf(&b, `
COMMIT;

-- A role that uses leases needs this and no more:
--   GRANT USAGE ON SCHEMA croft TO app;
--   GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA croft TO app;
--   GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA croft TO app;

-- If somebody has changed the functions, the schema's owner makes them again,
-- with the newest croft that uses the schema. Leases, marks and work stay. Run
-- this, then croft ls as the same role, then the last GRANT:
--   BEGIN;
--   DELETE FROM croft.migration WHERE version > %d;
--   DROP FUNCTION croft.version_%d();
--   COMMIT;
`, tablesVersion, newestVersion())
	return b.String()
}

// tablesVersion is the last version that made tables. All later migrations can
// run again.
const tablesVersion = 10

// setup makes the schema when a statement finds it missing. A server that has
// the schema is asked nothing extra.
type setup struct {
	pool  *pgxpool.Pool
	sql   *queries
	mutex chan struct{} // one migration at a time in this client; a context can end the wait
}

func newSetup(pool *pgxpool.Pool, sql *queries) *setup {
	return &setup{pool: pool, sql: sql, mutex: make(chan struct{}, 1)}
}

// readCommitted is the level of Croft's own transactions, whatever the role's
// default. At this level a transaction that waited for another sees its
// changes.
var readCommitted = pgx.TxOptions{IsoLevel: pgx.ReadCommitted}

// migrationLock is an advisory lock. Of many first users at once, one makes the
// schema and the others wait for it.
const migrationLock = 0x63726f66745f7067

// migrate brings the schema up to this version. A server process that waited
// for another to make the schema may still have in its cache that nothing is
// there. Its next transaction sees the schema, so migrate tries again.
func (s *setup) migrate(ctx context.Context) (err error) {
	select {
	case s.mutex <- struct{}{}:
		defer func() { <-s.mutex }()
	case <-ctx.Done():
		return wait.Ended(ctx)
	}
	for range 5 {
		if err = s.tryMigrate(ctx); !alreadyThere(err) {
			return err
		}
	}
	return err
}

// alreadyThere recognises the errors about objects that another process has
// just made.
func alreadyThere(err error) bool {
	for _, code := range []string{"23505", "42P06", "42P07", "42710", "42723", "42701"} {
		if hasCode(err, code) {
			return true
		}
	}
	return false
}

func (s *setup) tryMigrate(ctx context.Context) error {
	return pgx.BeginTxFunc(ctx, s.pool, readCommitted, func(tx pgx.Tx) error {
		// With another search_path, views and defaults would use objects that
		// other roles have put there.
		if _, err := tx.Exec(ctx, s.sql.making); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "SELECT pg_catalog.pg_advisory_xact_lock($1)", int64(migrationLock)); err != nil {
			return err
		}
		var made bool
		if err := tx.QueryRow(ctx, s.sql.there, s.sql.schema+".migration").Scan(&made); err != nil {
			return err
		}
		version := 0
		if made {
			if err := tx.QueryRow(ctx, s.sql.version).Scan(&version); err != nil {
				return err
			}
		}
		if version >= newestVersion() {
			return nil // another client was faster, or is newer; a newer schema has all that this one needs
		}
		if !made {
			if _, err := tx.Exec(ctx, s.sql.prepare, pgx.QueryExecModeSimpleProtocol); err != nil {
				return err
			}
		}
		for _, m := range migrations(s.sql.schema) {
			if m.version <= version {
				continue
			}
			if _, err := tx.Exec(ctx, m.text, pgx.QueryExecModeSimpleProtocol); err != nil {
				return fmt.Errorf("migration %s: %w", m.name, err)
			}
			if _, err := tx.Exec(ctx, s.sql.migrated, m.version, m.name); err != nil {
				return err
			}
		}
		return nil
	})
}

// run calls do. If do fails because the schema is missing or old, run migrates
// it and calls do once more. A statement that failed so has changed nothing.
func (s *setup) run(ctx context.Context, do func(ctx context.Context) error) error {
	err := do(ctx)
	if !lacksSchema(err) {
		return err
	}
	if err := s.migrate(ctx); err != nil {
		return fmt.Errorf("making the schema %s: %w", s.sql.schema, err)
	}
	return do(ctx)
}

// lacksSchema recognises the errors about a missing schema, table, function or
// column.
func lacksSchema(err error) bool {
	for _, code := range []string{"3F000", "42P01", "42883", "42703"} {
		if hasCode(err, code) {
			return true
		}
	}
	return false
}
