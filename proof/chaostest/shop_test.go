//go:build unix

package chaostest

import (
	"context"
	"database/sql"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/croft-dev/croft/backend/postgres"
	"github.com/croft-dev/croft/backend/sqlite"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/work"
)

// shop is one database with a ledger and a table of the application, the tally.
// The table has no unique index: only the ledger keeps a line from being
// written twice.
type shop interface {
	ledger() work.Ledger
	makeTally(ctx context.Context) error
	// complete writes a line to the tally and completes the item, in one
	// transaction.
	complete(ctx context.Context, job *work.Job, r work.Result) error
	tally(ctx context.Context) (map[work.ID]int, error)
	close()
}

const (
	sqlTally  = "CREATE TABLE tally (item text NOT NULL)"
	sqlTallyQ = "SELECT item, count(*) FROM tally GROUP BY item"
)

func openShop(ctx context.Context, url string) (shop, error) {
	if file, ok := strings.CutPrefix(url, "sqlite://"); ok {
		l, err := sqlite.OpenLedger(ctx, file, nil)
		if err != nil {
			return nil, err
		}
		db, err := sql.Open("sqlite", "file:"+file+"?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=synchronous(full)")
		if err != nil {
			return nil, err
		}
		return &fileShop{l, db}, nil
	}
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return nil, err
	}
	return &serverShop{postgres.NewLedger(pool, nil), pool}, nil
}

type fileShop struct {
	l  *sqlite.Ledger
	db *sql.DB
}

func (s *fileShop) ledger() work.Ledger { return s.l }

func (s *fileShop) makeTally(ctx context.Context) error {
	_, err := s.db.ExecContext(ctx, sqlTally)
	return err
}

func (s *fileShop) complete(ctx context.Context, job *work.Job, r work.Result) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, "INSERT INTO tally (item) VALUES (?)", string(job.Item().ID)); err != nil {
		return err
	}
	if err := job.CompleteIn(ctx, s.l.In(tx), r); err != nil {
		return err
	}
	return tx.Commit()
}

func (s *fileShop) tally(ctx context.Context) (map[work.ID]int, error) {
	rows, err := s.db.QueryContext(ctx, sqlTallyQ)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	lines := map[work.ID]int{}
	for rows.Next() {
		var id work.ID
		var n int
		if err := rows.Scan(&id, &n); err != nil {
			return nil, err
		}
		lines[id] = n
	}
	return lines, rows.Err()
}

func (s *fileShop) close() {
	_ = s.l.Close()
	_ = s.db.Close()
}

type serverShop struct {
	l    *postgres.Ledger
	pool *pgxpool.Pool
}

func (s *serverShop) ledger() work.Ledger { return s.l }

func (s *serverShop) makeTally(ctx context.Context) error {
	_, err := s.pool.Exec(ctx, sqlTally)
	return err
}

func (s *serverShop) complete(ctx context.Context, job *work.Job, r work.Result) error {
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO tally (item) VALUES ($1)", string(job.Item().ID)); err != nil {
			return err
		}
		return job.CompleteIn(ctx, s.l.In(tx), r)
	})
}

func (s *serverShop) tally(ctx context.Context) (map[work.ID]int, error) {
	rows, err := s.pool.Query(ctx, sqlTallyQ)
	if err != nil {
		return nil, err
	}
	lines := map[work.ID]int{}
	var id work.ID
	var n int
	_, err = pgx.ForEachRow(rows, []any{(*string)(&id), &n}, func() error {
		lines[id] = n
		return nil
	})
	return lines, err
}

func (s *serverShop) close() {
	_ = s.l.Close()
	s.pool.Close()
}

// memoryDir returns a folder in memory, if the system has one. A sync there
// costs nothing, and a killed process loses nothing there either.
func memoryDir(tb testing.TB) string {
	tb.Helper()
	within := testenv.InMemory()
	if within == "" {
		return tb.TempDir()
	}
	dir, err := os.MkdirTemp(within, "") //nolint:usetesting // t.TempDir is on disk
	if err != nil {
		return tb.TempDir()
	}
	tb.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
