package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// workSlots is how many items each contender works on at once.
const workSlots = 500

// crew is one way to work on items that do nothing.
type crew struct {
	name string
	// add enqueues n items.
	add func(ctx context.Context, n int) error
	// drain works on items until all n are known to be done.
	drain func(ctx context.Context, n int) error
	close func()
}

// crewRounds lets crews alternate, after a warm-up round. In every round each
// adds items and works on them.
func crewRounds(ctx context.Context, b *bench, e *engine, t *table, n int, crews []crew) error {
	defer func() {
		for _, c := range crews {
			c.close()
		}
	}()
	n = b.count(n)
	seen := make([]medians, len(crews))
	for round := range b.rounds + 1 {
		for i := range crews {
			if round%2 == 1 {
				i = len(crews) - 1 - i
			}
			c := crews[i]
			if seen[i] == nil {
				seen[i] = medians{}
			}
			runtime.GC()
			start := time.Now()
			if err := c.add(ctx, n); err != nil {
				return fmt.Errorf("%s: adding: %w", c.name, err)
			}
			added := time.Since(start)
			cpu := cpuTime() + e.used()
			start = time.Now()
			if err := c.drain(ctx, n); err != nil {
				return fmt.Errorf("%s: working: %w", c.name, err)
			}
			worked := time.Since(start)
			if round == 0 {
				continue
			}
			if added > time.Millisecond { // the floor has nothing to add
				seen[i].add("added", float64(n)/added.Seconds())
			}
			seen[i].add("rate", float64(n)/worked.Seconds())
			seen[i].add("cpu", float64(cpuTime()+e.used()-cpu)/float64(n))
		}
	}
	for i, c := range crews {
		t.Rows = append(t.Rows, row{c.name, seen[i].values()})
	}
	t.rate("rate", "ratio")
	t.columns = []column{
		{"rate", "worked per second", digits},
		{"ratio", "to the first", asRatio},
		{"added", "added per second", digits},
		{"cpu", "CPU each", asTime},
	}
	return nil
}

// used returns the CPU time that the server has used, 0 if there is none.
func (e *engine) used() time.Duration {
	if e == nil || e.cpu == nil {
		return 0
	}
	return e.cpu()
}

// croftCrew is a Croft worker. An item counts as done when the ledger has
// confirmed its completion.
func croftCrew(name string, l work.Ledger, batch int, end func()) crew {
	queue := "bench/" + string(work.NewID())
	return crew{
		name: name,
		add: func(ctx context.Context, n int) error {
			for n > 0 {
				var requests []work.Request
				for range min(n, batch) {
					requests = append(requests, work.Request{
						Verb: work.Add, ID: work.NewID(), Queue: queue, Payload: []byte(`{}`),
					})
				}
				for _, a := range l.Apply(ctx, requests) {
					if a.Err != nil {
						return a.Err
					}
				}
				n -= len(requests)
			}
			return nil
		},
		drain: func(ctx context.Context, n int) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			var left sync.WaitGroup
			left.Add(n)
			ended := make(chan error, 1)
			go func() {
				ended <- work.Run(ctx, l, map[string]work.Handler{
					queue: func(context.Context, *work.Job) (work.Result, error) { return work.Result{}, nil },
				}, &work.Options{
					Slots: workSlots, Poll: 20 * time.Millisecond,
					Observe: func(e work.Event) {
						if e.Kind == work.EventCompleted {
							left.Done()
						}
					},
				})
			}()
			all := make(chan struct{})
			go func() { left.Wait(); close(all) }()
			select {
			case <-all:
				cancel()
				return <-ended
			case err := <-ended:
				return fmt.Errorf("the worker ended before its work: %w", err)
			}
		},
		close: end,
	}
}

// claims measures how long a claim of one item takes, and completes each item.
func claims(ctx context.Context, l work.Ledger, queue string, n int) (each time.Duration, err error) {
	requests := make([]work.Request, n)
	for i := range requests {
		requests[i] = work.Request{Verb: work.Add, ID: work.NewID(), Queue: queue}
	}
	for _, a := range l.Apply(ctx, requests) {
		if a.Err != nil {
			return 0, a.Err
		}
	}
	var took []time.Duration
	for range n {
		secret := tenure.NewSecret()
		start := time.Now()
		items, err := l.Claim(ctx, work.Claim{
			Queues: []string{queue}, Limit: 1, Secret: secret, Owner: "bench", TTL: time.Minute,
		})
		took = append(took, time.Since(start))
		if err != nil || len(items) != 1 {
			return 0, fmt.Errorf("%d items: %w", len(items), err)
		}
		done := l.Apply(ctx, []work.Request{{
			Verb: work.Complete, ID: items[0].ID, Token: items[0].Record.Token, Secret: secret,
		}})
		if done[0].Err != nil {
			return 0, done[0].Err
		}
	}
	return median(took), nil
}
