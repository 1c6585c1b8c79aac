package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/croft-dev/croft/backend/postgres"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// ledgerWith returns an empty ledger by the server's clock, and its schema.
func ledgerWith(t *testing.T, wait time.Duration) (*postgres.Ledger, string) {
	t.Helper()
	own := empty(t)
	l := postgres.NewLedger(own.pool, &postgres.LedgerOptions{Schema: own.name, LockWait: wait})
	t.Cleanup(func() { _ = l.Close() })
	return l, own.name
}

func adds(queue string, n int) (all []work.Request) {
	for range n {
		all = append(all, work.Request{Verb: work.Add, ID: work.NewID(), Queue: queue, Payload: []byte("{}")})
	}
	return all
}

func applied(t *testing.T, l work.Operations, requests []work.Request) {
	t.Helper()
	for i, a := range l.Apply(t.Context(), requests) {
		if a.Err != nil {
			t.Fatalf("%s of item %s: %v", requests[i].Verb, requests[i].ID, a.Err)
		}
	}
}

func claimed(t *testing.T, l work.Operations, queue string, n int) ([]work.Item, tenure.Secret) {
	t.Helper()
	secret := tenure.NewSecret()
	items, err := l.Claim(t.Context(), work.Claim{Queues: []string{queue}, Limit: n, Secret: secret, Owner: "ann", TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return items, secret
}

// TestAnItemThatOthersKeepMakesNoOtherAnswerUnknown: in a batch of every kind,
// only the request on the locked item has no answer. It has one when it is sent
// again.
func TestAnItemThatOthersKeepMakesNoOtherAnswerUnknown(t *testing.T) {
	t.Parallel()
	for _, verb := range []work.Verb{work.Complete, work.Heartbeat, work.Report, work.Fail} {
		t.Run(string(verb), func(t *testing.T) {
			l, name := ledgerWith(t, time.Second)
			applied(t, l, adds("q", 60))
			items, secret := claimed(t, l, "q", 60)
			tx, err := shared(t).Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(context.Background()) }()
			if _, err := tx.Exec(t.Context(), "SELECT FROM "+name+".item WHERE id = $1::text::uuid FOR UPDATE", string(items[30].ID)); err != nil {
				t.Fatal(err)
			}
			requests := adds("other", 20)
			for _, it := range items {
				requests = append(requests, work.Request{Verb: verb, ID: it.ID, Token: it.Record.Token, Secret: secret})
			}
			for i, a := range l.Apply(t.Context(), requests) {
				switch kept := requests[i].ID == items[30].ID; {
				case kept && !errors.Is(a.Err, work.ErrUnknown):
					t.Errorf("the locked item: %v", a.Err)
				case !kept && a.Err != nil:
					t.Errorf("%s of another item: %v", requests[i].Verb, a.Err)
				}
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			applied(t, l, requests)
		})
	}
}

// TestACallersTransactionNeedsNoSecondConnection: a caller that holds the
// pool's only connection can work in it.
func TestACallersTransactionNeedsNoSecondConnection(t *testing.T) {
	t.Parallel()
	made, name := ledgerWith(t, testenv.Patience)
	applied(t, made, adds("q", 1))
	p := pool(t, server.url+"&pool_max_conns=1")
	defer p.Close()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	l := postgres.NewLedger(p, &postgres.LedgerOptions{Schema: name})
	err := pgx.BeginFunc(ctx, p, func(tx pgx.Tx) error {
		items, err := l.In(tx).Claim(ctx, work.Claim{Queues: []string{"q"}, Limit: 1, Secret: tenure.NewSecret(), Owner: "ann", TTL: time.Hour})
		if err == nil && len(items) != 1 {
			return fmt.Errorf("%d items", len(items))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestStricterDefaultLevelsDoNotTroubleTheLedger: the role's default is not
// READ COMMITTED. Many workers on one queue all get their answers.
func TestStricterDefaultLevelsDoNotTroubleTheLedger(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			shared(t)
			p := pool(t, server.url+"&pool_max_conns=8&default_transaction_isolation="+strings.ReplaceAll(level, " ", "%20"))
			defer p.Close()
			l := postgres.NewLedger(p, &postgres.LedgerOptions{Schema: empty(t).name, LockWait: testenv.Patience})
			defer l.Close()
			const workers, each = 6, 40
			var all sync.WaitGroup
			var mu sync.Mutex
			owners := map[work.ID]int{}
			for range workers {
				all.Go(func() {
					for range each / 4 {
						for _, a := range l.Apply(t.Context(), adds("q", 4)) {
							if a.Err != nil {
								t.Errorf("add: %v", a.Err)
							}
						}
						secret := tenure.NewSecret()
						items, err := l.Claim(t.Context(), work.Claim{Queues: []string{"q"}, Limit: 4, Secret: secret, Owner: "ann", TTL: time.Hour})
						if err != nil {
							t.Errorf("claim: %v", err)
						}
						var requests []work.Request
						for _, it := range items {
							mu.Lock()
							owners[it.ID]++
							mu.Unlock()
							requests = append(requests, work.Request{Verb: work.Complete, ID: it.ID, Token: it.Record.Token, Secret: secret, Effects: []work.Emission{{Name: "mail"}}})
						}
						for _, a := range l.Apply(t.Context(), requests) {
							if a.Err != nil {
								t.Errorf("complete: %v", a.Err)
							}
						}
					}
				})
			}
			all.Wait()
			for id, n := range owners {
				if n != 1 {
					t.Errorf("item %s was granted %d times", id, n)
				}
			}
		})
	}
}

// TestATimeThatNoDatabaseHoldsIsRefused: it is not stored as another time.
func TestATimeThatNoDatabaseHoldsIsRefused(t *testing.T) {
	t.Parallel()
	l, _ := ledgerWith(t, testenv.Patience)
	late, early := adds("q", 1)[0], adds("q", 1)[0]
	late.NotBefore, early.NotBefore = time.Unix(1<<54, 0), time.Unix(-1<<54, 0)
	answers := l.Apply(t.Context(), []work.Request{late, early})
	if !errors.Is(answers[0].Err, work.ErrInvalid) {
		t.Errorf("an item for the year %d: %v", late.NotBefore.Year(), answers[0].Err)
	}
	if answers[1].Err != nil || answers[1].Item.Ready.Before(answers[1].Now) {
		t.Errorf("an item for the year %d: ready %s, %v", early.NotBefore.Year(), answers[1].Item.Ready, answers[1].Err)
	}
}

// TestAClaimOfAnArmedQueueLocksNothing: a claim on an armed queue must not lock
// its row of idle. A transaction that adds work meanwhile would skip the row
// and tell nobody.
func TestAClaimOfAnArmedQueueLocksNothing(t *testing.T) {
	t.Parallel()
	l, name := ledgerWith(t, testenv.Patience)
	if _, err := l.Wake(t.Context(), work.Wanted{Queues: []string{"q"}}); err != nil {
		t.Fatal(err)
	}
	look := func() (row string) {
		claimed(t, l, "q", 1)
		if err := shared(t).QueryRow(t.Context(), "SELECT concat_ws(' ', ctid, xmin, xmax, wait_until) FROM "+name+".idle WHERE queue = 'q'").Scan(&row); err != nil {
			t.Fatal(err)
		}
		return row
	}
	if first, second := look(), look(); first != second {
		t.Errorf("an empty claim has locked or written the row:\n%s\n%s", first, second)
	}
}

// TestAnItemsRequestsKeepTheirOrderAlsoByItsIdempotencyKey: an Add may be
// answered with an item that exists. It comes before the completion of that
// item which was sent after it.
func TestAnItemsRequestsKeepTheirOrderAlsoByItsIdempotencyKey(t *testing.T) {
	t.Parallel()
	l, _ := ledgerWith(t, testenv.Patience)
	add := adds("q", 1)[0]
	add.Unique = "key"
	applied(t, l, []work.Request{add})
	items, secret := claimed(t, l, "q", 1)
	add.ID = work.NewID()
	answers := l.Apply(t.Context(), []work.Request{add, {Verb: work.Complete, ID: items[0].ID, Token: items[0].Record.Token, Secret: secret}})
	if a := answers[0]; a.Err != nil || a.Item.ID != items[0].ID || a.Item.State != work.Running {
		t.Errorf("the add is answered with item %s, which is %s: %v", a.Item.ID, a.Item.State, a.Err)
	}
	if a := answers[1]; a.Err != nil || a.Item.State != work.Done {
		t.Errorf("the completion: %s, %v", a.Item.State, a.Err)
	}
}

// TestALockedItemsRequestsKeepTheirOrderByItsIdempotencyKey: the same while
// another transaction keeps the item locked for a moment, so that the requests
// of the batch go apart.
func TestALockedItemsRequestsKeepTheirOrderByItsIdempotencyKey(t *testing.T) {
	t.Parallel()
	l, name := ledgerWith(t, testenv.Patience)
	for range 5 {
		add := adds("q", 1)[0]
		add.Unique = string(add.ID)
		applied(t, l, []work.Request{add})
		items, secret := claimed(t, l, "q", 1)
		tx, err := shared(t).Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		lock := "SELECT FROM " + name + ".item WHERE id = $1::text::uuid FOR UPDATE"
		if _, err := tx.Exec(t.Context(), lock, string(items[0].ID)); err != nil {
			t.Fatal(err)
		}
		// Longer than a batch waits for a row before its requests go apart.
		unlocked := make(chan error, 1)
		time.AfterFunc(300*time.Millisecond, func() { unlocked <- tx.Rollback(context.Background()) })
		add.ID = work.NewID()
		answers := l.Apply(t.Context(), []work.Request{
			add, {Verb: work.Complete, ID: items[0].ID, Token: items[0].Record.Token, Secret: secret},
		})
		if err := <-unlocked; err != nil {
			t.Fatal(err)
		}
		if a := answers[0]; a.Err != nil || a.Item.ID != items[0].ID || a.Item.State != work.Running {
			t.Errorf("the add is answered with item %s, which is %s: %v", a.Item.ID, a.Item.State, a.Err)
		}
		if a := answers[1]; a.Err != nil || a.Item.State != work.Done {
			t.Errorf("the completion: %s, %v", a.Item.State, a.Err)
		}
	}
}
