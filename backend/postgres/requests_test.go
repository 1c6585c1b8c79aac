package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/croft-dev/croft/backend/postgres"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

func claim(key, owner string) tenure.Request {
	return tenure.Request{Verb: tenure.Acquire, Key: key, Secret: tenure.NewSecret(), Owner: owner, TTL: time.Minute}
}

// then returns another request of the same grant.
func then(verb tenure.Verb, mine tenure.Request) tenure.Request {
	return tenure.Request{Verb: verb, Key: mine.Key, Secret: mine.Secret}
}

func one(ctx context.Context, st store.Store, req tenure.Request) store.Answer {
	return st.Apply(ctx, []tenure.Request{req})[0]
}

// must sends a request, and fails the test unless it takes effect.
func must(t *testing.T, st store.Store, req tenure.Request) store.Answer {
	t.Helper()
	a := one(t.Context(), st, req)
	if a.Err != nil {
		t.Fatalf("%s of %q: %v", req.Verb, req.Key, a.Err)
	}
	return a
}

// fresh returns a store in a schema of its own.
func fresh(t *testing.T, o postgres.Options) (st *postgres.Store, name string) {
	t.Helper()
	if o.Schema == "" {
		o.Schema = schema()
	}
	st = postgres.New(shared(t), &o)
	t.Cleanup(func() { st.Close() })
	return st, o.Schema
}

// exec runs SQL on the shared database.
func exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	if _, err := shared(t).Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// number returns the number that a statement selects.
func number(t *testing.T, sql string, args ...any) (n int64) {
	t.Helper()
	if err := shared(t).QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// waits returns when n transactions wait for a lock in a schema's functions.
func waits(t *testing.T, schema string, n int64) {
	t.Helper()
	testenv.Eventually(t, "a request waits for a lock", func() error {
		got := number(t, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%' || $1::text || '.%'", schema)
		if got < n {
			return errors.New("nobody waits")
		}
		return nil
	})
}
