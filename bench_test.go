package croft

import (
	"fmt"
	"testing"
	"time"

	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/internal/clock"
)

// BenchmarkAcquireRelease is what the client adds to a store that costs next to nothing.
func BenchmarkAcquireRelease(b *testing.B) {
	c := New(mem.New(nil), nil)
	defer c.Close()
	for n := 0; b.Loop(); n++ {
		l, err := c.Acquire(b.Context(), fmt.Sprint("bench/", n%1000), nil)
		if err != nil {
			b.Fatal(err)
		}
		if err := l.Release(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkTick is one renewal of ten thousand held leases, the store's part included, and one look when none is due.
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
			c.warden.tick()
			for leases[many-1].Remaining() < 50*time.Second { // the answers come on another goroutine
				time.Sleep(50 * time.Microsecond)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/many, "ns/lease")
	})
	b.Run("idle", func(b *testing.B) {
		for b.Loop() {
			c.warden.tick()
		}
	})
}
