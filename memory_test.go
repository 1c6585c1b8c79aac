package croft

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// TestALongWaitKeepsNoBatchInMemory: a refused caller may wait for days. It
// must not keep the answers of a thousand others, which came in the same batch.
func TestALongWaitKeepsNoBatchInMemory(t *testing.T) {
	inBubble(t, func(r *rig) {
		other := r.client(nil, nil)
		r.acquire(other, "jobs/held", &LeaseOptions{TTL: time.Hour})
		tap := &tap{Store: r.st}
		var answers weak.Pointer[store.Answer]
		tap.set(func(ctx context.Context, batch []tenure.Request) []store.Answer {
			made := r.st.Apply(ctx, batch)
			if answers == (weak.Pointer[store.Answer]{}) {
				answers = weak.Make(&made[0])
			}
			return made
		})
		c := r.client(tap, nil)
		ctx, cancel := context.WithCancel(r.Context())
		var waits sync.WaitGroup
		waits.Go(func() { _, _ = c.Acquire(ctx, "jobs/held", &LeaseOptions{WaitFor: Forever}) })
		synctest.Wait()
		runtime.GC()
		if answers.Value() != nil {
			r.Error("a contender that waits keeps the answers of the batch in which it was refused")
		}
		cancel()
		waits.Wait()
		answers = weak.Pointer[store.Answer]{}
		l := r.acquire(c, "jobs/mine", nil)
		synctest.Wait()
		runtime.GC()
		if answers.Value() != nil {
			r.Error("a lease keeps the answers of the batch in which it was granted")
		}
		runtime.KeepAlive(l)
	})
}
