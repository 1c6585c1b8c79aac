package chaos

import (
	"context"
	"errors"
	"path/filepath"
)

// groundDir is a folder for the store and one for the files. There is no server
// and no network, so only clients have faults.
func groundDir(_ context.Context, s *stand) (*ground, error) {
	folder := s.TempDir()
	return &ground{stand: s, urls: func([]string) (string, string) {
		return filepath.Join(folder, "store"), folder
	}}, nil
}

// groundSQLite is a database for the store and another for the rows.
func groundSQLite(ctx context.Context, s *stand) (*ground, error) {
	folder := s.TempDir()
	rows := filepath.Join(folder, "rows.db")
	db, err := openSQLite(rows)
	if err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, statement("make_sqlite")); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	store := "sqlite://" + filepath.ToSlash(filepath.Join(folder, "leases.db"))
	return &ground{stand: s, urls: func([]string) (string, string) { return store, rows }}, db.Close()
}
