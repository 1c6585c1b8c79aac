package refusals

import (
	"context"
	"sync"
	"time"

	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

const (
	// recordEvery is the shortest time between two writes to the store. A loop
	// that is refused a thousand times a second must not put load on the store.
	recordEvery = time.Second
	// mostRefusals is how many different refusals can wait. Further ones are
	// only counted with those.
	mostRefusals = 8
	// recordBound is how long Close waits for a write that is under way.
	recordBound = 500 * time.Millisecond
)

// Recorder records refusals in a store. Its goroutine runs only while refusals
// wait. It makes its own calls of the store, so it does not delay the calls for
// leases.
type Recorder struct {
	st      store.Store
	clk     clock.Clock
	timeout time.Duration // for one call of the store
	closing chan struct{} // closed when Close begins
	once    sync.Once     // for Close
	life    context.Context
	kill    context.CancelFunc // ends the calls under way

	mu      sync.Mutex // guards the fields below
	waiting []Refusal
	last    clock.Instant // the time of the last write
	began   bool          // there was a write, so last counts
	done    chan struct{} // closed when the goroutine ends; nil if there is none
}

// NewRecorder makes a recorder. Each call of the store takes at most timeout.
func NewRecorder(st store.Store, clk clock.Clock, timeout time.Duration) *Recorder {
	n := &Recorder{st: st, clk: clk, timeout: timeout, closing: make(chan struct{})}
	n.life, n.kill = context.WithCancel(context.Background())
	return n
}

// Add records a refusal soon. It returns at once and cannot fail: if the store
// does not take the refusal, it is forgotten.
func (n *Recorder) Add(r Refusal) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.merge(r) {
		n.waiting = append(n.waiting, r)
	}
	if n.done == nil && n.life.Err() == nil {
		n.done = make(chan struct{})
		go n.run(n.done)
	}
}

// merge adds a refusal to an equal one in the queue. If the queue is full, it
// adds it to the newest refusal of the same namespace, or drops it. It returns
// false if the refusal needs a place of its own in the queue. The caller holds
// the mutex.
func (n *Recorder) merge(r Refusal) bool {
	for i := range n.waiting {
		w := &n.waiting[i]
		if w.Key == r.Key && w.Token == r.Token && w.grant == r.grant &&
			w.Act == r.Act && w.Code == r.Code && w.Target == r.Target {
			w.Count += r.Count
			w.Newest = max(w.Newest, r.Newest)
			return true
		}
	}
	if len(n.waiting) < mostRefusals {
		return false
	}
	for i := len(n.waiting) - 1; i >= 0; i-- {
		if keyOf(n.waiting[i].Key) == keyOf(r.Key) {
			n.waiting[i].Count += r.Count
			break
		}
	}
	return true
}

// run records refusals until none waits.
func (n *Recorder) run(done chan struct{}) {
	defer close(done)
	for {
		n.mu.Lock()
		pause := time.Duration(0)
		if n.began {
			pause = recordEvery - n.clk.Now().Sub(n.last)
		}
		n.mu.Unlock()
		if pause > 0 && !n.closed() {
			timer := n.clk.Timer(pause)
			select {
			case <-timer.C():
			case <-n.closing: // record now, or never
			}
			timer.Stop()
		}
		n.mu.Lock()
		batch := n.waiting
		n.waiting = nil
		if len(batch) == 0 || n.life.Err() != nil {
			n.done = nil
			n.mu.Unlock()
			return
		}
		n.last, n.began = n.clk.Now(), true
		n.mu.Unlock()
		n.record(batch)
	}
}

// record writes refusals to the store. It ignores errors.
func (n *Recorder) record(batch []Refusal) {
	ctx, cancel := context.WithTimeout(n.life, n.timeout)
	defer cancel()
	known := map[string]tenure.Record{}
	var requests []tenure.Request
	for _, r := range batch {
		if r.Owner == "" {
			rec, read := known[r.Key]
			if !read {
				rec, _ = n.st.Get(ctx, r.Key)
				known[r.Key] = rec
			}
			if rec.IsZero() {
				// Anybody can present any stamp. Only keys that exist may
				// leave a trace.
				continue
			}
			for _, term := range rec.History {
				// The token alone proves nothing: it is easy to guess.
				if term.Token == r.Token && term.Grant == r.grant {
					r.Owner = term.Owner
				}
			}
		}
		if req, err := r.request(); err == nil {
			requests = append(requests, req)
		}
	}
	if len(requests) > 0 {
		n.st.Apply(ctx, requests)
	}
}

// Close records the waiting refusals. It waits for that at most half a second,
// cancels the call under way, and waits half a second again. Further calls only
// wait for the first.
func (n *Recorder) Close() {
	n.once.Do(func() {
		close(n.closing)
		n.flush()
		n.kill()
		n.flush()
	})
}

func (n *Recorder) closed() bool {
	select {
	case <-n.closing:
		return true
	default:
		return false
	}
}

// flush waits until the goroutine ends, but at most recordBound.
func (n *Recorder) flush() {
	n.mu.Lock()
	done := n.done
	n.mu.Unlock()
	if done == nil {
		return
	}
	timer := n.clk.Timer(recordBound)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C():
	}
}
