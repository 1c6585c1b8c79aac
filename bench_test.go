package croft

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// instant grants every request at once, and remembers nothing.
type instant struct{ store.Store }

func (instant) Apply(_ context.Context, batch []tenure.Request) []store.Answer {
	now := time.Now()
	answers := make([]store.Answer, len(batch))
	for i := range batch {
		answers[i].Now = now
		answers[i].Record = tenure.Record{Key: batch[i].Key, Token: 1, TTL: batch[i].TTL, Deadline: now.Add(batch[i].TTL)}
	}
	return answers
}

// afar is instant behind a network: while a call is in flight, others gather.
type afar struct{ instant }

func (s afar) Apply(ctx context.Context, batch []tenure.Request) []store.Answer {
	time.Sleep(50 * time.Microsecond)
	return s.instant.Apply(ctx, batch)
}

// BenchmarkAcquireRelease measures what the client adds to a store that costs
// nothing: for one caller, for several, and for a crowd that waits.
func BenchmarkAcquireRelease(b *testing.B) {
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = fmt.Sprint("bench/", i)
	}
	pair := func(b *testing.B, c *Client, key string) {
		l, err := c.Acquire(b.Context(), key, nil)
		if err != nil {
			b.Fatal(err)
		}
		if err := l.Release(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("lone", func(b *testing.B) {
		c := New(instant{}, nil)
		defer c.Close()
		b.ReportAllocs()
		for n := 0; b.Loop(); n++ {
			pair(b, c, keys[n%len(keys)])
		}
	})
	many := func(b *testing.B, st store.Store) {
		c := New(st, nil)
		defer c.Close()
		b.ReportAllocs()
		b.SetParallelism(32)
		var next atomic.Int64
		b.RunParallel(func(pb *testing.PB) {
			key := keys[next.Add(1)]
			for pb.Next() {
				pair(b, c, key)
			}
		})
	}
	b.Run("64", func(b *testing.B) { many(b, instant{}) })
	b.Run("crowd", func(b *testing.B) { many(b, afar{}) })
}

// BenchmarkTick measures one renewal of ten thousand leases, the store's part
// included, and one tick when none is due.
func BenchmarkTick(b *testing.B) {
	clk := clock.NewManual(0)
	now := time.Now()
	st := mem.New(&mem.Options{Now: func() time.Time { return now.Add(time.Duration(clk.Now())) }})
	c := newClient(st, nil, clk, func() float64 { return 1 })
	defer c.Close()
	const many = 10_000
	leases := make([]*Lease, many)
	for i := range leases {
		var err error
		if leases[i], err = c.Acquire(b.Context(), fmt.Sprint("bench/", i), &LeaseOptions{TTL: time.Minute}); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("renewal", func(b *testing.B) {
		for b.Loop() {
			clk.Advance(20 * time.Second)
			c.tick()
			for leases[many-1].Remaining() < 50*time.Second { // the answers come on another goroutine
				time.Sleep(50 * time.Microsecond)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/many, "ns/lease")
	})
	b.Run("idle", func(b *testing.B) {
		for b.Loop() {
			c.tick()
		}
	})
}
