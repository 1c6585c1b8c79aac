package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Schema is the text of everything that the store and the fence table need, for whoever makes it with psql. Running it where it has been made
// already fails and changes nothing. A role that only uses it needs the rights named at its end.
func Schema() string {
	const schema = DefaultSchema
	s := newStatements(schema)
	var b strings.Builder
	b.WriteString("-- Everything that Croft keeps in PostgreSQL. Run it once, as a role that may create a schema:\n--   croft schema postgres | psql -v ON_ERROR_STOP=1 DATABASE\n\nBEGIN;\nSET LOCAL search_path = pg_catalog, pg_temp;\n" +
		"SET LOCAL client_min_messages = warning; -- what is not there need not be dropped\n\n")
	b.WriteString(s.prepare + "\n")
	for _, m := range migrations(schema) {
		fmt.Fprintf(&b, "\n-- %s\n\n%s\n\nINSERT INTO %s.migration (version, name) VALUES (%d, '%s');\n", m.name, m.text, schema, m.version, m.name)
	}
	b.WriteString(`
COMMIT;

-- A role that uses leases needs this and no more:
--   GRANT USAGE ON SCHEMA croft TO app;
--   GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA croft TO app;
--   GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA croft TO app;
`)
	return b.String()
}

// setup makes the schema when a statement finds it missing: nothing is asked of a server that has it.
type setup struct {
	pool *pgxpool.Pool
	sql  *statements
	turn chan struct{} // one at a time is enough for a client
}

func newSetup(pool *pgxpool.Pool, sql *statements) *setup {
	return &setup{pool: pool, sql: sql, turn: make(chan struct{}, 1)}
}

// readCommitted is how Croft's own transactions run, whatever the role's default: who waited for another sees what it has done.
var readCommitted = pgx.TxOptions{IsoLevel: pgx.ReadCommitted}

// migrationLock is what clients that make the schema wait for, so that of many first users one makes it.
const migrationLock = 0x63726f66745f7067

// migrate brings the schema up to this version. A server process that waited for another to make it may still have in its cache that nothing is there; the next
// transaction knows better.
func (s *setup) migrate(ctx context.Context) (err error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return over(ctx)
	}
	for range 5 {
		if err = s.tryMigrate(ctx); !alreadyThere(err) {
			return err
		}
	}
	return err
}

// alreadyThere recognises the errors about what another has just made.
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
		// With the path of another, views and defaults would be made of what others have put there.
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
			return nil // another was faster, or is newer: what it has made is still there
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

// run calls do, and once more after making the schema if that is what do lacked. A statement that lacked it has changed nothing.
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

// lacksSchema recognises the errors about a schema, table, function or column that is not there.
func lacksSchema(err error) bool {
	for _, code := range []string{"3F000", "42P01", "42883", "42703"} {
		if hasCode(err, code) {
			return true
		}
	}
	return false
}
