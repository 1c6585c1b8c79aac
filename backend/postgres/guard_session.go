package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// session is a transaction, of either driver.
type session interface {
	// row reads the only row of a statement. It returns errNoRow or errManyRows
	// if there is not exactly one.
	row(ctx context.Context, text string, args []any, into ...any) error
	// texts reads the only column of all rows of a statement.
	texts(ctx context.Context, text string, args ...any) ([]string, error)
	// exec returns how many rows a statement has changed.
	exec(ctx context.Context, text string, args ...any) (rows int64, err error)
}

// database is a pool in which a guard begins transactions of its own.
type database interface {
	// within calls do in a transaction and commits it if do returns nil.
	within(ctx context.Context, do func(session) error) error
	// address returns the server and the database, as far as they are known.
	address() *url.URL
}

// Errors of a statement that should find one row.
var (
	errNoRow    = errors.New("no row")
	errManyRows = errors.New("several rows")
)

// one reads the only row.
func one(rows interface {
	Next() bool
	Scan(into ...any) error
	Err() error
}, into []any,
) error {
	if !rows.Next() {
		return cmp.Or(rows.Err(), errNoRow)
	}
	if err := rows.Scan(into...); err != nil {
		return err
	}
	if rows.Next() {
		return errManyRows
	}
	return rows.Err()
}

type pgxSession struct{ tx pgx.Tx }

func (s pgxSession) row(ctx context.Context, text string, args []any, into ...any) error {
	rows, err := s.tx.Query(ctx, text, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	return one(rows, into)
}

func (s pgxSession) texts(ctx context.Context, text string, args ...any) ([]string, error) {
	rows, err := s.tx.Query(ctx, text, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// poolTexts reads the only column of all rows, in a transaction of its own.
func poolTexts(ctx context.Context, pool *pgxpool.Pool, text string, args ...any) ([]string, error) {
	rows, err := pool.Query(ctx, text, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

func (s pgxSession) exec(ctx context.Context, text string, args ...any) (int64, error) {
	done, err := s.tx.Exec(ctx, text, args...)
	return done.RowsAffected(), err
}

type pgxDatabase struct{ pool *pgxpool.Pool }

func (d pgxDatabase) within(ctx context.Context, do func(session) error) error {
	return pgx.BeginTxFunc(ctx, d.pool, readCommitted, func(tx pgx.Tx) error { return do(pgxSession{tx}) })
}

func (d pgxDatabase) address() *url.URL {
	c := d.pool.Config().ConnConfig
	port := strconv.Itoa(int(c.Port))
	// Without a name the server takes the database named like the user. Other
	// users have another default, so the address always has the name.
	u := &url.URL{Scheme: "postgres", Path: "/" + cmp.Or(c.Database, c.User)}
	if strings.ContainsRune(c.Host, '/') { // a socket
		u.RawQuery = url.Values{"host": {c.Host}, "port": {port}}.Encode()
	} else {
		u.Host = net.JoinHostPort(c.Host, port)
	}
	return u
}

type sqlSession struct{ tx *sql.Tx }

func (s sqlSession) row(ctx context.Context, text string, args []any, into ...any) error {
	rows, err := s.tx.QueryContext(ctx, text, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	return one(rows, into)
}

func (s sqlSession) texts(ctx context.Context, text string, args ...any) (all []string, err error) {
	rows, err := s.tx.QueryContext(ctx, text, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var one string
		if err := rows.Scan(&one); err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, rows.Err()
}

func (s sqlSession) exec(ctx context.Context, text string, args ...any) (int64, error) {
	done, err := s.tx.ExecContext(ctx, text, args...)
	if err != nil {
		return 0, err
	}
	return done.RowsAffected()
}

type sqlDatabase struct{ db *sql.DB }

func (d sqlDatabase) within(ctx context.Context, do func(session) error) error {
	tx, err := d.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	if err := do(sqlSession{tx}); err != nil {
		return err
	}
	return tx.Commit()
}

// address has no server: database/sql does not tell which it is.
func (d sqlDatabase) address() *url.URL { return &url.URL{Scheme: "postgres", Path: "/"} }
