package croft

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/croft-dev/croft/store"
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
