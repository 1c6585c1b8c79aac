package chaos

import (
	"context"
	"errors"
	"path/filepath"
)

// testbedDir is a folder for the store and one for the files. There is no
// server and no network, so only clients have faults.
func testbedDir(_ context.Context, s *stand) (*testbed, error) {
	folder := s.TempDir()
	return &testbed{stand: s, urls: func([]string) (string, string) {
		return filepath.Join(folder, "store"), folder
	}}, nil
}

// testbedSQLite is a database for the store and another for the rows.
func testbedSQLite(ctx context.Context, s *stand) (*testbed, error) {
	folder := s.TempDir()
	rows := filepath.Join(folder, "rows.db")
	db, err := openSQLite(rows)
	if err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, queries.Must("make_sqlite")); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	store := "sqlite://" + filepath.ToSlash(filepath.Join(folder, "leases.db"))
	return &testbed{stand: s, urls: func([]string) (string, string) { return store, rows }}, db.Close()
}
