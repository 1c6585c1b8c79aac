package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/croft-dev/croft/backend/postgres"
	"github.com/croft-dev/croft/work"
)

const workItems = 5000

// benchWork compares Croft's ledger with River on the same server.
func benchWork(ctx context.Context, b *bench) error {
	e, err := b.postgres(ctx)
	if err != nil {
		return err
	}
	river1, err := riverCrew(ctx, e, "river, completed in a transaction", true)
	if err != nil {
		return err
	}
	river2, err := riverCrew(ctx, e, "river, completed in batches afterwards", false)
	if err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, e.url)
	if err != nil {
		return err
	}
	l := postgres.NewLedger(pool, nil)
	t := b.newTable()
	err = crewRounds(ctx, b, e, t, workItems, []crew{
		river1, river2, croftCrew(croftName, l, 1000, func() { _ = l.Close(); pool.Close() }),
	})
	if err != nil {
		return err
	}
	t.Notes = append(
		t.Notes,
		"River completes jobs in batches afterwards, and works on others meanwhile",
		"in a transaction River completes each job as durably as a worker that waits",
		"Croft's worker waits until the ledger confirms",
	)
	b.add(t)
	return nil
}

// job is a job that does nothing.
type job struct{}

func (job) Kind() string { return "nothing" }

type jobWorker struct {
	river.WorkerDefaults[job]
	pool *pgxpool.Pool // set to complete jobs in a transaction
}

func (w *jobWorker) Work(ctx context.Context, j *river.Job[job]) error {
	if w.pool == nil {
		return nil
	}
	return pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, j)
		return err
	})
}

// riverCrew is a River client with the settings of River's own benchmark.
func riverCrew(ctx context.Context, e *engine, name string, inTransaction bool) (crew, error) {
	schema := "river_batches"
	if inTransaction {
		schema = "river_each"
	}
	config, err := pgxpool.ParseConfig(e.url + "&search_path=" + schema)
	if err != nil {
		return crew{}, err
	}
	config.MaxConns = 50
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return crew{}, err
	}
	if _, err := pool.Exec(ctx, "CREATE SCHEMA IF NOT EXISTS "+schema); err != nil {
		return crew{}, err
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: quiet(), Schema: schema})
	if err != nil {
		return crew{}, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return crew{}, err
	}
	w := &jobWorker{}
	if inTransaction {
		w.pool = pool
	}
	newClient := func() (*river.Client[pgx.Tx], error) {
		workers := river.NewWorkers()
		river.AddWorker(workers, w)
		return river.NewClient(riverpgxv5.New(pool), &river.Config{
			Queues: map[string]river.QueueConfig{river.QueueDefault: {
				MaxWorkers: workSlots, FetchCooldown: 2 * time.Millisecond,
				FetchPollInterval: 20 * time.Millisecond,
			}},
			Workers: workers, Logger: quiet(), Schema: schema,
		})
	}
	return crew{
		name: name,
		add: func(ctx context.Context, n int) error {
			client, err := newClient()
			if err != nil {
				return err
			}
			for ; n > 0; n -= 1000 {
				many := make([]river.InsertManyParams, min(n, 1000))
				for i := range many {
					many[i] = river.InsertManyParams{Args: job{}}
				}
				if _, err := client.InsertManyFast(ctx, many); err != nil {
					return err
				}
			}
			return nil
		},
		drain: func(ctx context.Context, n int) error {
			client, err := newClient()
			if err != nil {
				return err
			}
			done, stop := client.SubscribeConfig(&river.SubscribeConfig{
				Kinds: []river.EventKind{river.EventKindJobCompleted}, ChanSize: 2 * n,
			})
			defer stop()
			if err := client.Start(ctx); err != nil {
				return err
			}
			for ; n > 0; n-- {
				<-done
			}
			return client.Stop(ctx)
		},
		close: pool.Close,
	}, nil
}

func quiet() *slog.Logger {
	return slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelError + 1}))
}

// benchClaims measures claims beside finished items.
func benchClaims(ctx context.Context, b *bench) error {
	e, err := b.postgres(ctx)
	if err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, e.url)
	if err != nil {
		return err
	}
	defer pool.Close()
	const few, many = "bench_few", "bench_many"
	ledgers := map[string]*postgres.Ledger{}
	for schema, finished := range map[string]int{few: 10_000, many: 1_000_000} {
		// It opens nothing but the pool, so it is not closed.
		l := postgres.NewLedger(pool, &postgres.LedgerOptions{Schema: schema})
		ledgers[schema] = l
		if err := finish(ctx, pool, l, schema, b.count(finished)); err != nil {
			return err
		}
	}
	seen := map[string]medians{few: {}, many: {}}
	for round := range b.rounds + 1 {
		for _, schema := range []string{few, many} {
			each, err := claims(ctx, ledgers[schema], "bench/claims", b.count(200))
			if err != nil {
				return err
			}
			if round > 0 {
				seen[schema].add("wall", float64(each))
			}
		}
	}
	t := b.newTable()
	t.Rows = []row{{"beside 10,000 finished items", seen[few].values()}, {"beside 1,000,000", seen[many].values()}}
	t.rate("wall", "ratio")
	t.columns = []column{{"wall", "a claim", asTime}, {"ratio", "to the first", asRatio}}
	b.add(t)
	return nil
}

// finish fills a ledger with finished items. They are like items that were
// added and worked on, but this is faster.
func finish(ctx context.Context, pool *pgxpool.Pool, l *postgres.Ledger, schema string, n int) error {
	if a := l.Apply(ctx, []work.Request{{Verb: work.Add, ID: work.NewID(), Queue: "bench/first"}}); a[0].Err != nil {
		return a[0].Err
	}
	_, err := pool.Exec(ctx, fmt.Sprintf(`INSERT INTO %[1]s.item (
			id, queue, state, priority, attempts, tries, ready, created, finished,
			token, acquired, renewed, deadline, ttl, terms,
			grant_id, owner, held, cause, ended, payload
		)
		SELECT gen_random_uuid(), 'bench/claims', 'done', 0, 1, 10, us, us, us,
			us, us, us, us, 60000000, 1,
			gen_random_uuid(), 'bench', 'free', 'first', 'released', '{}'
		FROM (
			SELECT extract(epoch FROM clock_timestamp())::bigint * 1000000 - g AS us
			FROM generate_series(1, $1) AS g
		) AS made`, schema), n)
	if err != nil {
		return err
	}
	_, err = pool.Exec(ctx, fmt.Sprintf("VACUUM ANALYZE %s.item", schema))
	return err
}
