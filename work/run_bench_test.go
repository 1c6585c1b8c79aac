package work_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// instant is a ledger that hands out new items and forgets them at once. Each
// call takes as long as a round trip. What remains is the cost of the worker.
type instant struct {
	*mem.Ledger
	left  atomic.Int64
	trip  time.Duration
	calls atomic.Int64
	done  sync.WaitGroup
}

func (l *instant) Claim(_ context.Context, c work.Claim) ([]work.Item, error) {
	l.calls.Add(1)
	time.Sleep(l.trip)
	n := int(min(int64(c.Limit), max(l.left.Add(-int64(c.Limit))+int64(c.Limit), 0)))
	items := make([]work.Item, n)
	now := tenure.Time(time.Now())
	for i := range items {
		it, err := work.Grant(work.Item{ID: work.NewID(), Queue: "q", State: work.Waiting, Ready: now, Limit: 3}, c, now)
		if err != nil {
			return nil, err
		}
		items[i] = it
	}
	return items, nil
}

func (l *instant) Apply(_ context.Context, requests []work.Request) []work.Answer {
	l.calls.Add(1)
	time.Sleep(l.trip)
	answers := make([]work.Answer, len(requests))
	for i, r := range requests {
		answers[i].Item = work.Item{ID: r.ID, State: work.Done}
		l.done.Done()
	}
	return answers
}

// BenchmarkWorker measures what the worker costs per item that does nothing,
// with a ledger a millisecond away.
func BenchmarkWorker(b *testing.B) {
	for _, slots := range []int{1, 16, 100, 1000} {
		b.Run(fmt.Sprintf("slots=%d", slots), func(b *testing.B) {
			l := &instant{Ledger: mem.NewLedger(nil), trip: time.Millisecond}
			l.left.Store(int64(b.N))
			l.done.Add(b.N)
			ctx, cancel := context.WithCancel(b.Context())
			ended := make(chan error, 1)
			b.ResetTimer()
			go func() {
				ended <- work.Run(ctx, l, map[string]work.Handler{"q": func(context.Context, *work.Job) (work.Result, error) { return work.Result{}, nil }}, &work.Options{Slots: slots})
			}()
			l.done.Wait()
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "items/s")
			b.ReportMetric(float64(b.N)/float64(l.calls.Load()), "items/call")
			cancel()
			if err := <-ended; err != nil {
				b.Fatal(err)
			}
		})
	}
}
