package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/croft-dev/croft/backend/postgres"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/tenure"
)

// counts waits until a statement returns want.
func counts(t *testing.T, want int64, sql string, args ...any) {
	t.Helper()
	testenv.Eventually(t, sql, func() error {
		if n := number(t, sql, args...); n != want {
			return fmt.Errorf("%d, want %d", n, want)
		}
		return nil
	})
}

// TestALockedKeySilencesNoOther: a client waits for several keys. Another
// transaction keeps the row of one key locked. That must not keep the client
// out of the other queues.
func TestALockedKeySilencesNoOther(t *testing.T) {
	t.Parallel()
	st, name := fresh(t, postgres.Options{LockWait: testenv.Patience})
	waiter := beside(t, name)
	keys := []string{"queue/locked", "queue/other"}
	for _, key := range keys {
		must(t, st, claim(key, "ann"))
	}
	letGo := blocked(t, name, keys[0])
	for _, key := range keys { // it does not ask: it enters on its own
		if _, err := waiter.Watch(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	inQueue := "SELECT count(*) FROM " + name + ".waiter WHERE key = $1"
	counts(t, 1, inQueue, keys[1])
	if n := number(t, inQueue, keys[0]); n != 0 {
		t.Error("it is in the queue for a key whose row is locked")
	}
	letGo()
	counts(t, 1, inQueue, keys[0])
}

// TestAskingAgainInTheQueueLocksNothing: another transaction has the row
// locked. The client is still told that another holds the key.
func TestAskingAgainInTheQueueLocksNothing(t *testing.T) {
	t.Parallel()
	st, name := fresh(t, postgres.Options{})
	waiter := beside(t, name)
	keys := []string{"queue/again", "queue/again2"}
	for _, key := range keys {
		must(t, st, claim(key, "ann"))
		waitsFor(t, waiter, key)
	}
	versions := func() (sum int64) {
		return number(t, "SELECT sum(xmin::text::bigint) FROM "+name+".waiter") +
			number(t, "SELECT sum(xmin::text::bigint) FROM "+name+".lease")
	}
	before := versions()
	letGo := blocked(t, name, keys[0])
	defer letGo()
	for _, requests := range [][]tenure.Request{
		{claim(keys[0], "bob")}, {claim(keys[0], "bob"), claim(keys[1], "bob")},
	} {
		for _, a := range waiter.Apply(t.Context(), requests) {
			if !errors.Is(a.Err, tenure.ErrHeld) {
				t.Errorf("asking again, %d at a time: %v", len(requests), a.Err)
			}
		}
	}
	if after := versions(); after != before {
		t.Error("asking again has written something")
	}
}

// TestAskingAgainKeepsAPositionAlive: asking again prolongs a position that
// soon lapses. It also restores a position that was used up or lost.
func TestAskingAgainKeepsAPositionAlive(t *testing.T) {
	t.Parallel()
	st, name := fresh(t, postgres.Options{})
	waiter := beside(t, name)
	mine := claim("queue/alive", "ann")
	must(t, st, mine)
	waitsFor(t, waiter, mine.Key)
	for _, change := range []string{
		"UPDATE %s.waiter SET wait_until = clock_timestamp() + interval '20 seconds'",
		"UPDATE %s.waiter SET named = true", "DELETE FROM %s.waiter",
		"UPDATE %s.lease SET awaited = false",
	} {
		for _, batch := range []bool{false, true} {
			exec(t, fmt.Sprintf(change, name))
			requests := []tenure.Request{claim(mine.Key, "bob")}
			if batch {
				requests = append(requests, then(tenure.Renew, claim("queue/none", "bob")))
			}
			if a := waiter.Apply(t.Context(), requests)[0]; !errors.Is(a.Err, tenure.ErrHeld) {
				t.Fatal(a.Err)
			}
			inQueue := "SELECT count(*) FROM " + name + ".waiter JOIN " + name + `.lease USING (key)
				WHERE awaited AND NOT named AND wait_until > clock_timestamp() + interval '25 seconds'`
			if number(t, inQueue) != 1 {
				t.Errorf("after %q, in a batch: %t: the client is not in the queue", change, batch)
			}
		}
	}
}

// TestAGrantEndsThePositionInTheQueue: this holds for a key without a record,
// too. Otherwise the client would be named in vain.
func TestAGrantEndsThePositionInTheQueue(t *testing.T) {
	t.Parallel()
	st, name := fresh(t, postgres.Options{})
	must(t, st, claim("queue/made", "ann"))
	for _, batch := range []bool{false, true} {
		key := fmt.Sprintf("queue/granted/%t", batch)
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := st.Watch(ctx, key); err != nil {
			t.Fatal(err)
		}
		inQueue := "SELECT count(*) FROM " + name + ".waiter WHERE key = $1"
		counts(t, 1, inQueue, key)
		requests := []tenure.Request{claim(key, "ann")}
		if batch {
			requests = append(requests, claim(key+"/other", "ann"))
		}
		for _, a := range st.Apply(t.Context(), requests) {
			if a.Err != nil {
				t.Fatal(a.Err)
			}
		}
		cancel()
		counts(t, 0, inQueue, key)
	}
}
