package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/croft-dev/croft/backend/postgres"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// blocked locks the row of a key in a transaction, until letGo is called.
func blocked(t *testing.T, schema, key string) (letGo func()) {
	t.Helper()
	tx, err := shared(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	var there int
	if err := tx.QueryRow(t.Context(), "SELECT 1 FROM "+schema+".lease WHERE key = $1 FOR UPDATE", key).Scan(&there); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := tx.Rollback(t.Context()); err != nil && !errors.Is(err, pgx.ErrTxClosed) {
			t.Fatal(err)
		}
	}
}

func now(t *testing.T, st store.Store) time.Time {
	t.Helper()
	at, err := st.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// TestARenewalThatWaitedBehindALockIsNotBornExpired: its deadline counts from
// the moment when it got the lock, not from when it was sent.
func TestARenewalThatWaitedBehindALockIsNotBornExpired(t *testing.T) {
	t.Parallel()
	st, name := fresh(t, postgres.Options{LockWait: testenv.Patience})
	mine := claim("blocked/renewal", "ann")
	must(t, st, mine)
	letGo := blocked(t, name, mine.Key)
	answer := make(chan store.Answer, 1)
	short := then(tenure.Renew, mine)
	go func() { answer <- one(t.Context(), st, short) }()
	waits(t, name, 1)
	released := now(t, st)
	letGo()
	a := <-answer
	if a.Err != nil {
		t.Fatalf("the renewal: %v", a.Err)
	}
	if a.Now.Before(released) || !a.Record.Deadline.Equal(a.Now.Add(time.Minute)) {
		t.Errorf("a renewal let through at %s was judged at %s and lasts until %s", released, a.Now, a.Record.Deadline)
	}
}

// TestARenewalThatWaitedBehindALockIsNotAcceptedLate: it was sent in time, but
// got the lock after the deadline.
func TestARenewalThatWaitedBehindALockIsNotAcceptedLate(t *testing.T) {
	t.Parallel()
	st, name := fresh(t, postgres.Options{LockWait: testenv.Patience})
	for ttl := time.Second; ; ttl *= 2 { // until the machine is fast enough to send a renewal in time
		mine := claim("blocked/late/"+ttl.String(), "ann")
		mine.TTL = ttl
		granted := must(t, st, mine)
		letGo := blocked(t, name, mine.Key)
		answer := make(chan store.Answer, 1)
		go func() { answer <- one(t.Context(), st, then(tenure.Renew, mine)) }()
		waits(t, name, 1)
		inTime := now(t, st).Before(granted.Record.Deadline)
		testenv.Eventually(t, "the lease expires", func() error {
			if now(t, st).Before(granted.Record.Deadline) {
				return errors.New("it lives")
			}
			return nil
		})
		letGo()
		var lost *tenure.NotOwnedError
		if a := <-answer; !errors.As(a.Err, &lost) || lost.Why != tenure.WhyExpired {
			t.Fatalf("a renewal that came through after the deadline: %v, want refused as expired", a.Err)
		}
		if inTime {
			return
		}
	}
}

// TestALockedKeyDelaysNobodyElse: the other requests of its batch get their
// answers. Other batches do not notice.
func TestALockedKeyDelaysNobodyElse(t *testing.T) {
	t.Parallel()
	st, name := fresh(t, postgres.Options{LockWait: testenv.Patience})
	var leases []tenure.Request
	for n := range 20 {
		leases = append(leases, claim(fmt.Sprintf("blocked/batch/%02d", n), "ann"))
		must(t, st, leases[n])
	}
	letGo := blocked(t, name, leases[7].Key)
	var renewals []tenure.Request
	for _, mine := range leases {
		renewals = append(renewals, then(tenure.Renew, mine))
	}
	answers := make(chan []store.Answer, 1)
	go func() { answers <- st.Apply(t.Context(), renewals) }()
	waits(t, name, 1) // only the request on the locked key waits
	for i, mine := range leases {
		rec, err := st.Get(t.Context(), mine.Key)
		if err != nil {
			t.Fatal(err)
		}
		if renewed := rec.Renewed.After(rec.Acquired); renewed != (i != 7) {
			t.Errorf("while key 7 is locked, key %d is renewed: %v", i, renewed)
		}
	}
	for i, a := range st.Apply(t.Context(), renewals[8:]) {
		if a.Err != nil {
			t.Errorf("another batch, key %d: %v", i+8, a.Err)
		}
	}
	letGo()
	for i, a := range <-answers {
		if a.Err != nil {
			t.Errorf("key %d: %v", i, a.Err)
		}
	}
}

// TestALockThatStaysIsUnknown: the wait is bounded. Then the outcome of that
// one request is unknown.
func TestALockThatStaysIsUnknown(t *testing.T) {
	t.Parallel()
	st, name := fresh(t, postgres.Options{LockWait: 50 * time.Millisecond})
	held, other := claim("blocked/stays", "ann"), claim("blocked/other", "ann")
	must(t, st, held)
	letGo := blocked(t, name, held.Key)
	for _, requests := range [][]tenure.Request{{then(tenure.Renew, held)}, {other, then(tenure.Renew, held), then(tenure.Report, held)}} {
		for i, a := range st.Apply(t.Context(), requests) {
			switch {
			case requests[i].Key == other.Key && a.Err != nil:
				t.Errorf("a key nobody has locked: %v", a.Err)
			case requests[i].Key == held.Key && (!errors.Is(a.Err, store.ErrUnknown) || !a.Record.IsZero()):
				t.Errorf("%s of a locked key: %v, want unknown", requests[i].Verb, a.Err)
			}
		}
	}
	// A refusal because another holds the key needs no lock.
	if a := one(t.Context(), st, claim(held.Key, "bob")); !errors.Is(a.Err, tenure.ErrHeld) {
		t.Errorf("acquiring a held key whose row is locked: %v, want held", a.Err)
	}
	letGo()
	must(t, st, then(tenure.Renew, held))
}

// TestAnOpenInsertOfANewKeyDelaysNobodyElse: another transaction is just
// creating the key, so there is no row that could be skipped.
func TestAnOpenInsertOfANewKeyDelaysNobodyElse(t *testing.T) {
	t.Parallel()
	st, name := fresh(t, postgres.Options{LockWait: 50 * time.Millisecond})
	must(t, st, claim("blocked/model", "ann"))
	tx, err := shared(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), fmt.Sprintf(
		`INSERT INTO %[1]s.lease SELECT (jsonb_populate_record(l, '{"key": "blocked/new/1"}')).* FROM %[1]s.lease l`, name)); err != nil {
		t.Fatal(err)
	}
	for i, a := range st.Apply(t.Context(), []tenure.Request{claim("blocked/new/0", "ann"), claim("blocked/new/1", "ann"), claim("blocked/new/2", "ann")}) {
		if unknown := errors.Is(a.Err, store.ErrUnknown); unknown != (i == 1) || (!unknown && a.Err != nil) {
			t.Errorf("key %d: %v; only key 1 is being made by another", i, a.Err)
		}
	}
}
