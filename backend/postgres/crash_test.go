package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/croft-dev/croft/backend/postgres"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/test/crowd"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
)

// TestNoLawIsBrokenWhenTheServerIsKilled: it is killed again and again while
// many clients acquire, renew, write and release. All of them recover without
// help.
func TestNoLawIsBrokenWhenTheServerIsKilled(t *testing.T) {
	t.Parallel()
	pg := testenv.NewPostgres(t)
	p := pool(t, pg.Database(t)+"&pool_max_conns=20")
	t.Cleanup(p.Close)
	harness := written(t, p)
	harness.TTL = time.Second
	for range 12 {
		st := postgres.New(p, nil)
		t.Cleanup(func() { st.Close() })
		harness.Stores = append(harness.Stores, st)
	}
	all := crowd.Gather(t, harness)
	for range 2 {
		all.EverybodyGoesOn("every client gets on by itself")
		pg.Kill(t)
		pg.Start(t)
	}
	all.EverybodyGoesOn("every client gets on by itself")
	all.Judge()
	for _, key := range harness.Keys {
		var mark, last int64
		if err := p.QueryRow(t.Context(), "SELECT f.fence_token, (SELECT token FROM written WHERE key = $1 ORDER BY id DESC LIMIT 1) FROM croft.fence f WHERE f.name = $1", key).Scan(&mark, &last); err != nil {
			t.Fatal(err)
		}
		if mark != last {
			t.Errorf("%s is of %d and its mark of %d: they are written in one step", key, last, mark)
		}
	}
}

// written is a harness for a crowd that writes into a guarded table.
func written(t *testing.T, pool *pgxpool.Pool) crowd.Harness {
	t.Helper()
	if _, err := pool.Exec(t.Context(), "CREATE TABLE written (id bigserial PRIMARY KEY, key text, token bigint)"); err != nil {
		t.Fatal(err)
	}
	h := crowd.Harness{Keys: crowd.Keys(4)}
	guards := map[string]*postgres.Guard{}
	for _, key := range h.Keys {
		g, err := postgres.NewGuard(pool, postgres.FenceRow{Name: key}, nil)
		if err != nil {
			t.Fatal(err)
		}
		guards[key] = g
	}
	h.Write = func(ctx context.Context, key string, s fence.Stamp) error {
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if err := guards[key].Admit(ctx, tx, s); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "INSERT INTO written (key, token) VALUES ($1, $2)", key, int64(s.Token))
			return err
		})
		if err == nil || errors.As(err, new(*fence.StaleError)) || errors.As(err, new(*fence.RefusedError)) {
			return err
		}
		return store.Unknown(err) // the connection broke: before the commit, in it, or after it
	}
	h.Written = func(ctx context.Context, key string) ([]fence.Token, error) {
		rows, err := pool.Query(ctx, "SELECT token FROM written WHERE key = $1 ORDER BY id", key)
		if err != nil {
			return nil, err
		}
		return pgx.CollectRows(rows, pgx.RowTo[fence.Token])
	}
	return h
}
