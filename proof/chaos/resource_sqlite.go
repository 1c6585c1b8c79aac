package chaos

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"strings"

	"github.com/croft-dev/croft/backend/sqlite"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
)

// sqliteResource is a row. site is the path of its database.
type sqliteResource struct {
	db  *sql.DB
	g   *sqlite.Guard
	key string
}

func openRow(_ context.Context, site, key string) (resource, error) {
	db, err := openSQLite(site)
	if err != nil {
		return nil, err
	}
	g, err := sqlite.NewGuard(db, sqlite.FenceRow{Name: key}, nil)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &sqliteResource{db: db, g: g, key: key}, nil
}

func openSQLite(path string) (*sql.DB, error) {
	u := url.URL{
		Scheme: "file", Path: path,
		RawQuery: url.Values{"_pragma": {"busy_timeout(2000)", "journal_mode(WAL)"}}.Encode(),
	}
	return sql.Open("sqlite", u.String())
}

// numbered rewrites arguments in the form that SQLite takes.
func numbered(statement string) string { return strings.ReplaceAll(statement, "$", "?") }

func (p *sqliteResource) guard() guard.Guard { return p.g }

func (p *sqliteResource) read(ctx context.Context) (holds string, err error) {
	err = p.db.QueryRowContext(ctx, numbered(queries.Must("read")), p.key).Scan(&holds)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return holds, err
}

func (p *sqliteResource) write(ctx context.Context, stamp fence.Stamp, update string) error {
	return p.transact(ctx, update, func(tx *sql.Tx) error { return p.g.Admit(ctx, tx, stamp) })
}

func (p *sqliteResource) bare(ctx context.Context, update string) error {
	return p.transact(ctx, update, func(*sql.Tx) error { return nil })
}

func (p *sqliteResource) transact(ctx context.Context, update string, admit func(*sql.Tx) error) error {
	tx, err := p.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	if err := admit(tx); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, numbered(queries.Must("write")), p.key, update); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, numbered(queries.Must("apply")), p.key, update); err != nil {
		return err
	}
	return tx.Commit()
}

func (p *sqliteResource) applied(ctx context.Context) ([]string, bool, error) {
	rows, err := p.db.QueryContext(ctx, numbered(queries.Must("applied")), p.key)
	if err != nil {
		return nil, true, err
	}
	defer rows.Close()
	var updates []string
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, true, err
		}
		updates = append(updates, id)
	}
	return updates, true, rows.Err()
}

func (p *sqliteResource) close() { _ = p.db.Close() }
