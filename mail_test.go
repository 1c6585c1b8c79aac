package croft

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// TestNobodyMissesABellOrHearsAnothers: what callers wait with goes from one to the next, at any moment of a wait. Every letter is read, and every ring heard, without waiting for the time; and
// nobody is woken for nothing.
func TestNobodyMissesABellOrHearsAnothers(t *testing.T) {
	const callers, letters = 16, 300
	inBubble(t, func(r *rig) {
		c := r.client(nil, nil)
		start := time.Now()
		var all sync.WaitGroup
		for range callers {
			var m mail
			idle := make(chan struct{}, 1) // the bell was heard: the next may ring
			all.Go(func() {
				for i := range letters {
					for range rand.IntN(3) {
						runtime.Gosched()
					}
					new(letter).address(&m, nil, fresh, i).to.receive(store.Failed(1, errDown), c.clk.Now())
					if i%3 == 0 {
						m.ring()
						<-idle
					}
				}
			})
			all.Go(func() {
				for read, heard := 0, 0; read < letters || heard < letters/3; {
					l := m.take()
					if l == nil {
						l = c.await(&m, time.Hour, nil, nil)
					}
					switch {
					case l == nil:
						heard++
						idle <- struct{}{}
					case l.attempt != read:
						r.Errorf("letter %d was read as the %dth", l.attempt, read)
						return
					default:
						read++
					}
				}
			})
		}
		all.Wait()
		wantAfter(r, start, 0, 0)
	})
}

// TestWhoWaitsLongKeepsNothingOfOthers: a contender that was refused may wait for days, and a thousand others may have been in the batch with it.
func TestWhoWaitsLongKeepsNothingOfOthers(t *testing.T) {
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

		kept := &letter{}
		gone := func() weak.Pointer[letter] {
			companion := &letter{}
			ask := func(l *letter) *submission {
				return l.address(&mail{}, []tenure.Request{{Verb: tenure.Renew, Key: "jobs/one", Secret: tenure.NewSecret()}}, fresh, 0)
			}
			batch := ask(kept)
			batch.next = ask(companion)
			c.calls.submit(batch)
			return weak.Make(companion)
		}()
		synctest.Wait()
		runtime.GC()
		if gone.Value() != nil {
			r.Error("a letter that is kept keeps those that were sent with it")
		}
		runtime.KeepAlive(kept)
	})
}
