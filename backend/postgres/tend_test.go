package postgres

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/croft-dev/croft/internal/testenv"
	"github.com/croft-dev/croft/tenure"
)

// TestALockedKeySilencesNoOther: a client that waits for many keys enters itself again for all of them from time to time. One whose row another keeps locked must not make the database forget
// that it waits for the others.
func TestALockedKeySilencesNoOther(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	pool, err := pgxpool.New(ctx, testenv.Postgres(t).Database(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	st := New(pool, &Options{LockWait: time.Second})
	defer st.Close()
	const locked, other = "tend/locked", "tend/other"
	for _, key := range []string{locked, other} {
		claim := func() tenure.Request {
			return tenure.Request{Verb: tenure.Acquire, Key: key, Secret: tenure.NewSecret(), Owner: "ann", TTL: time.Hour}
		}
		st.Apply(ctx, []tenure.Request{claim()})
		if _, err := st.Watch(ctx, key); err != nil {
			t.Fatal(err)
		}
		if a := st.Apply(ctx, []tenure.Request{claim()})[0]; !errors.Is(a.Err, tenure.ErrHeld) {
			t.Fatal(a.Err)
		}
	}
	tx, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := tx.Exec(ctx, "SELECT FROM croft.lease WHERE key = $1 FOR UPDATE", locked); err != nil {
		t.Fatal(err)
	}
	// A while later, the database is about to forget who waits.
	if _, err := pool.Exec(ctx, "UPDATE croft.waiter SET wait_until = clock_timestamp()"); err != nil {
		t.Fatal(err)
	}
	l := st.listener
	l.mu.Lock()
	for _, w := range l.keys {
		w.until = time.Now().Add(refresh)
	}
	l.mu.Unlock()
	conn, err := pool.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if err := l.tend(ctx, conn.Conn()); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "it waits for the other key", func() error {
		var n int
		if err := pool.QueryRow(ctx, "SELECT count(*) FROM croft.waiter WHERE key = $1 AND wait_until > clock_timestamp()", other).Scan(&n); err != nil {
			return err
		}
		if n == 0 {
			return errors.New("it has been forgotten")
		}
		return nil
	})
}
