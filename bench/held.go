package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/backend/dir"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// counted is a store that counts calls, requests, errors and the time in it.
type counted struct {
	store.Store
	calls, requests, lost atomic.Int64
	busy                  atomic.Int64
}

func (c *counted) Apply(ctx context.Context, requests []tenure.Request) []store.Answer {
	start := time.Now()
	answers := c.Store.Apply(ctx, requests)
	c.busy.Add(int64(time.Since(start)))
	c.calls.Add(1)
	c.requests.Add(int64(len(requests)))
	for _, a := range answers {
		if a.Err != nil {
			c.lost.Add(1)
		}
	}
	return answers
}

// benchHeld holds many leases in one client for a few renewal intervals, and
// reports the cost.
func benchHeld(ctx context.Context, b *bench) error {
	const ttl = 30 * time.Second
	t := b.newTable()
	path, err := b.folder("held")
	if err != nil {
		return err
	}
	inner, err := dir.Open(path, nil)
	if err != nil {
		return err
	}
	st := &counted{Store: inner}
	client := croft.New(st, nil)
	defer func() {
		_ = client.Close()
		_ = inner.Close()
	}()
	start := time.Now()
	var wg sync.WaitGroup
	var failed atomic.Pointer[error]
	for g := range 64 {
		wg.Go(func() {
			for i := g; i < b.leases; i += 64 {
				if _, err := client.Acquire(ctx, fmt.Sprintf("held/%d", i), &croft.LeaseOptions{TTL: ttl}); err != nil {
					failed.Store(&err)
					return
				}
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	t.Notes = append(t.Notes, fmt.Sprintf(
		"%d leases with a TTL of %s were acquired in %s by 64 goroutines", b.leases, ttl,
		short(time.Since(start)),
	))

	const intervals = 3
	calls, requests, busy, cpu := st.calls.Load(), st.requests.Load(), st.busy.Load(), cpuTime()
	select {
	case <-time.After(intervals * ttl / 3):
	case <-ctx.Done():
		return ctx.Err()
	}
	calls, requests, busy, cpu = st.calls.Load()-calls, st.requests.Load()-requests, st.busy.Load()-busy, cpuTime()-cpu
	each := func(v int64) float64 { return float64(v) / intervals }
	t.Rows = []row{{fmt.Sprintf("per renewal interval of %s", ttl/3), map[string]float64{
		"calls": each(calls), "requests": each(requests), "busy": each(busy),
		"cpu": each(int64(cpu)), "lost": float64(st.lost.Load()),
		"cores": cpu.Seconds() / (intervals * ttl / 3).Seconds(),
	}}}
	t.columns = []column{
		{"calls", "calls", digits},
		{"requests", "renewals", digits},
		{"busy", "in the store", asTime},
		{"cpu", "CPU", asTime},
		{"cores", "cores", asCores},
		{"lost", "refused", digits},
	}
	b.add(t)
	return nil
}
