package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"cirello.io/pglock"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/lib/pq"

	"github.com/croft-dev/croft/backend/postgres"
	"github.com/croft-dev/croft/store"
)

// pgPool returns a metered pgx pool with a connection for every worker.
func pgPool(ctx context.Context, e *engine, m *meter, workers int) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(e.url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(max(workers, 4))
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return m.overPostgres(c), nil
	}
	return pgxpool.NewWithConfig(ctx, config)
}

// croftPostgres is Croft as applications use it, with one client for all
// workers. With apart it has one for each, as if each were a process.
func croftPostgres(e *engine, apart bool) rival {
	name := croftName
	if apart {
		name += ", a client for each waiter"
	}
	return rival{name, func(_ context.Context, workers int) (*opened, error) {
		m := &meter{}
		n := 1
		if apart {
			n = workers
		}
		var pools []*pgxpool.Pool
		open := func(ctx context.Context) (store.Store, error) {
			pool, err := pgPool(ctx, e, m, 1)
			if err != nil {
				return nil, err
			}
			pools = append(pools, pool)
			return postgres.New(pool, nil), nil
		}
		return openCroft(m, n, open, func() {
			for _, pool := range pools {
				pool.Close()
			}
		})
	}}
}

// The smallest statements that lock and unlock a row safely.
const (
	floorTable = `CREATE TABLE IF NOT EXISTS floor (
			key text COLLATE "C" PRIMARY KEY,
			token bigint NOT NULL,
			holder text NOT NULL,
			deadline timestamptz NOT NULL
		) WITH (fillfactor = 70)`
	floorLock = `INSERT INTO floor AS f VALUES ($1, 1, $2, clock_timestamp() + $3 * interval '1 ms')
		ON CONFLICT (key) DO UPDATE
		SET token = f.token + 1, holder = excluded.holder, deadline = excluded.deadline
		WHERE f.deadline < clock_timestamp()
		RETURNING token`
	floorUnlock = `UPDATE floor SET deadline = '-infinity' WHERE key = $1 AND holder = $2`
)

// floorPostgres is two handwritten prepared statements, each in its own commit.
func floorPostgres(e *engine) rival {
	return rival{floorName, func(ctx context.Context, workers int) (*opened, error) {
		m := &meter{}
		pool, err := pgPool(ctx, e, m, workers)
		if err != nil {
			return nil, err
		}
		if _, err := pool.Exec(ctx, floorTable); err != nil {
			return nil, err
		}
		t := func(ctx context.Context, key string) (func(context.Context) error, error) {
			secret := rand.Text()
			var token int64
			if err := pool.QueryRow(ctx, floorLock, key, secret, ttl.Milliseconds()).Scan(&token); err != nil {
				return nil, err
			}
			return func(ctx context.Context) error {
				_, err := pool.Exec(ctx, floorUnlock, key, secret)
				return err
			}, nil
		}
		return &opened{takes: []take{t}, meter: m, close: pool.Close}, nil
	}}
}

// meteredDial connects pq.
type meteredDial struct{ meter *meter }

func (d meteredDial) Dial(network, addr string) (net.Conn, error) {
	return d.DialTimeout(network, addr, time.Minute)
}

func (d meteredDial) DialTimeout(network, addr string, timeout time.Duration) (net.Conn, error) {
	c, err := net.DialTimeout(network, addr, timeout)
	if err != nil {
		return nil, err
	}
	return d.meter.overPostgres(c), nil
}

// pglockRival is pglock with the given lease. The lease is also how long it
// sleeps before it asks again for a held key.
func pglockRival(e *engine, lease time.Duration) rival {
	name := "pglock"
	if lease != ttl {
		name = fmt.Sprintf("pglock (lease of %s)", lease)
	}
	return rival{name, func(_ context.Context, workers int) (*opened, error) {
		m := &meter{}
		connector, err := pq.NewConnector(e.url)
		if err != nil {
			return nil, err
		}
		connector.Dialer(meteredDial{m})
		db := sql.OpenDB(connector)
		db.SetMaxOpenConns(max(workers, 4))
		db.SetMaxIdleConns(max(workers, 4))
		client, err := pglock.UnsafeNew(db, pglock.WithLeaseDuration(lease), pglock.WithHeartbeatFrequency(lease/3))
		if err != nil {
			return nil, err
		}
		if err := client.TryCreateTable(); err != nil {
			return nil, err
		}
		t := func(ctx context.Context, key string) (func(context.Context) error, error) {
			lock, err := client.AcquireContext(ctx, key)
			if err != nil {
				return nil, err
			}
			return func(ctx context.Context) error { return client.ReleaseContext(ctx, lock) }, nil
		}
		hold := func(ctx context.Context, key string) (func() error, error) {
			lock, err := client.AcquireContext(ctx, key, pglock.FailIfLocked())
			if err != nil {
				return nil, err
			}
			return func() error {
				if lock.IsReleased() {
					return errors.New("its heartbeat has failed")
				}
				return nil
			}, nil
		}
		return &opened{takes: []take{t}, hold: hold, meter: m, close: func() { _ = db.Close() }}, nil
	}}
}

// advisoryRival are session locks. They are in memory only, without an owner's
// name, a deadline or a token. Each takes its holder a connection.
func advisoryRival(e *engine) rival {
	return rival{"advisory locks, for scale", func(ctx context.Context, workers int) (*opened, error) {
		m := &meter{}
		pool, err := pgPool(ctx, e, m, workers)
		if err != nil {
			return nil, err
		}
		t := func(ctx context.Context, key string) (func(context.Context) error, error) {
			conn, err := pool.Acquire(ctx)
			if err != nil {
				return nil, err
			}
			if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock(hashtextextended($1, 0))", key); err != nil {
				conn.Release()
				return nil, err
			}
			return func(ctx context.Context) error {
				defer conn.Release()
				_, err := conn.Exec(ctx, "SELECT pg_advisory_unlock(hashtextextended($1, 0))", key)
				return err
			}, nil
		}
		var mu sync.Mutex
		var one *pgxpool.Conn // holds them all
		hold := func(ctx context.Context, key string) (_ func() error, err error) {
			mu.Lock()
			defer mu.Unlock()
			if one == nil {
				if one, err = pool.Acquire(ctx); err != nil {
					return nil, err
				}
			}
			_, err = one.Exec(ctx, "SELECT pg_advisory_lock(hashtextextended($1, 0))", key)
			return func() error { return one.Ping(context.Background()) }, err
		}
		return &opened{takes: []take{t}, hold: hold, meter: m, close: func() {
			if one != nil {
				one.Release()
			}
			pool.Close()
		}}, nil
	}}
}
