package chaos

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/croft-dev/croft/backend/postgres"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
)

// postgresResource is a row. site is the URL of its database.
type postgresResource struct {
	pool *pgxpool.Pool
	g    *postgres.Guard
	key  string
}

func openTable(ctx context.Context, site, key string) (resource, error) {
	config, err := pgxpool.ParseConfig(site)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 1 // each key has a resource, and a client uses one at a time
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	g, err := postgres.NewGuard(pool, postgres.FenceRow{Name: key}, nil)
	if err != nil {
		pool.Close()
		return nil, err
	}
	return &postgresResource{pool: pool, g: g, key: key}, nil
}

func (p *postgresResource) guard() guard.Guard { return p.g }

func (p *postgresResource) read(ctx context.Context) (holds string, err error) {
	err = p.pool.QueryRow(ctx, queries.Must("read"), p.key).Scan(&holds)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	return holds, err
}

func (p *postgresResource) write(ctx context.Context, stamp fence.Stamp, update string) error {
	return p.transact(ctx, update, func(tx pgx.Tx) error { return p.g.Admit(ctx, tx, stamp) })
}

func (p *postgresResource) bare(ctx context.Context, update string) error {
	return p.transact(ctx, update, func(pgx.Tx) error { return nil })
}

func (p *postgresResource) transact(ctx context.Context, update string, admit func(pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error {
		if err := admit(tx); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, queries.Must("write"), p.key, update); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, queries.Must("apply"), p.key, update)
		return err
	})
}

func (p *postgresResource) applied(ctx context.Context) ([]string, bool, error) {
	rows, err := p.pool.Query(ctx, queries.Must("applied"), p.key)
	if err != nil {
		return nil, true, err
	}
	updates, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return updates, true, err
}

func (p *postgresResource) close() { p.pool.Close() }
