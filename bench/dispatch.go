package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/backend/postgres"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
	"github.com/croft-dev/croft/work/steward"
)

const dispatchEffects = 5000

// benchDispatch measures how many effects leave by webhooks to a receiver on
// this machine: while nothing else happens, and while workers are busy.
func benchDispatch(ctx context.Context, b *bench) error {
	e, err := b.postgres(ctx)
	if err != nil {
		return err
	}
	o, err := newOutbox(ctx, e)
	if err != nil {
		return err
	}
	defer o.close()
	n := b.count(dispatchEffects)
	t := b.newTable()
	contenders := []struct {
		name        string
		dispatchers int
		busy        bool
	}{
		{"one dispatcher, nothing else", 1, false},
		{"one dispatcher, workers busy", 1, true},
		{"two dispatchers, nothing else", 2, false},
		{"two dispatchers, workers busy", 2, true},
	}
	seen := make([]medians, len(contenders))
	for round := range b.rounds + 1 {
		for i := range contenders {
			if round%2 == 1 {
				i = len(contenders) - 1 - i
			}
			c := contenders[i]
			if seen[i] == nil {
				seen[i] = medians{}
			}
			if err := o.emit(ctx, n); err != nil {
				return fmt.Errorf("emitting: %w", err)
			}
			runtime.GC()
			cpu := cpuTime() + e.used()
			took, worked, err := o.deliver(ctx, n, c.dispatchers, c.busy)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			if round > 0 {
				seen[i].add("rate", float64(n)/took.Seconds())
				if c.busy {
					seen[i].add("worked", float64(worked)/took.Seconds())
				} else {
					seen[i].add("cpu", float64(cpuTime()+e.used()-cpu)/float64(n))
				}
			}
		}
	}
	for i, c := range contenders {
		t.Rows = append(t.Rows, row{c.name, seen[i].values()})
	}
	t.rate("rate", "ratio")
	t.columns = []column{
		{"rate", "delivered per second", digits},
		{"ratio", "to the first", asRatio},
		{"cpu", "CPU each", asTime},
		{"worked", "items worked meanwhile, per second", digits},
	}
	b.add(t)
	return nil
}

// outbox is a ledger with effects, and a receiver for them.
type outbox struct {
	pool     *pgxpool.Pool
	ledger   *postgres.Ledger
	store    *postgres.Store
	receiver *httptest.Server
}

func newOutbox(ctx context.Context, e *engine) (*outbox, error) {
	pool, err := pgxpool.New(ctx, e.url)
	if err != nil {
		return nil, err
	}
	return &outbox{
		pool: pool, ledger: postgres.NewLedger(pool, nil), store: postgres.New(pool, nil),
		receiver: httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusNoContent)
		})),
	}, nil
}

func (o *outbox) close() {
	o.receiver.Close()
	_ = o.store.Close()
	_ = o.ledger.Close()
	o.pool.Close()
}

// emit completes n items, each with one effect.
func (o *outbox) emit(ctx context.Context, n int) error {
	queue := "bench/" + string(work.NewID())
	for ; n > 0; n -= 1000 {
		var adds []work.Request
		for range min(n, 1000) {
			adds = append(adds, work.Request{Verb: work.Add, ID: work.NewID(), Queue: queue})
		}
		if err := o.apply(ctx, adds); err != nil {
			return err
		}
		secret := tenure.NewSecret()
		items, err := o.ledger.Claim(ctx, work.Claim{
			Queues: []string{queue}, Limit: len(adds), Secret: secret, Owner: "bench", TTL: time.Minute,
		})
		if err != nil {
			return err
		}
		var dones []work.Request
		for _, it := range items {
			dones = append(dones, work.Request{
				Verb: work.Complete, ID: it.ID, Token: it.Record.Token, Secret: secret,
				Effects: []work.Emission{{Name: "hook", Body: []byte(`{"total": 17}`)}},
			})
		}
		if err := o.apply(ctx, dones); err != nil {
			return err
		}
	}
	return nil
}

func (o *outbox) apply(ctx context.Context, requests []work.Request) error {
	for _, a := range o.ledger.Apply(ctx, requests) {
		if a.Err != nil {
			return a.Err
		}
	}
	return nil
}

// deliver lets dispatchers deliver n effects. It returns how long that took,
// and how many items busy workers did meanwhile.
func (o *outbox) deliver(
	ctx context.Context, n, dispatchers int, busy bool,
) (took time.Duration, worked int, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	var left, done sync.WaitGroup
	left.Add(n)
	failed := make(chan error, dispatchers+1)
	if busy {
		crew := croftCrew("", o.ledger, 1000, nil)
		begun := make(chan struct{})
		var once sync.Once
		done.Add(1)
		all.Go(func() {
			defer done.Done()
			for ctx.Err() == nil {
				err := crew.add(ctx, 1000)
				once.Do(func() { close(begun) })
				if err == nil {
					err = crew.drain(ctx, 1000)
				}
				if ctx.Err() == nil && err != nil {
					failed <- err
					return
				}
				worked += 1000
			}
		})
		<-begun
	}
	start := time.Now()
	for range dispatchers {
		c := croft.New(o.store, nil)
		all.Go(func() {
			defer c.Close()
			if err := steward.RunDispatcher(ctx, c, o.ledger, map[string]steward.Deliverer{
				"hook": steward.Webhook{URL: o.receiver.URL},
			}, &steward.DispatchOptions{Observe: func(d steward.Delivery) {
				if d.State == work.Sent && d.Refused == nil {
					left.Done()
				} else {
					failed <- errors.Join(errors.New("a delivery failed"), d.Err, d.Refused)
				}
			}}); err != nil {
				failed <- err
			}
		})
	}
	sent := make(chan struct{})
	go func() { left.Wait(); close(sent) }()
	select {
	case <-sent:
	case err = <-failed:
	case <-ctx.Done():
		err = ctx.Err()
	}
	took = time.Since(start)
	stop()
	done.Wait()
	return took, worked, err
}
