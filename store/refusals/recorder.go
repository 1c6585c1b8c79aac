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
	// recordEvery bounds how often a client records refusals: a loop that is refused a thousand times a second must not become a load on the store.
	recordEvery = time.Second
	// mostRefusals bounds how many different ones are recorded at a time; more are counted with those.
	mostRefusals = 8
	// recordBound is how long Close waits for what is being recorded.
	recordBound = 500 * time.Millisecond
)

// Recorder notes refusals in a store, in a goroutine that exists while there is
// something to note. Its calls of the store are its own, so they delay no
// lease's.
type Recorder struct {
	st      store.Store
	clk     clock.Clock
	timeout time.Duration // of one call of the store
	closing chan struct{} // closed when Close begins
	life    context.Context
	kill    context.CancelFunc

	mu      sync.Mutex
	waiting []Refusal
	last    clock.Instant // when some were last recorded
	began   bool          // last counts
	done    chan struct{} // closed when the goroutine has ended; nil if there is none
}

// NewRecorder makes a recorder. A call of the store takes at most timeout.
func NewRecorder(st store.Store, clk clock.Clock, timeout time.Duration) *Recorder {
	n := &Recorder{st: st, clk: clk, timeout: timeout, closing: make(chan struct{})}
	n.life, n.kill = context.WithCancel(context.Background())
	return n
}

// Add notes a refusal. It returns at once and cannot fail: what the store does
// not take soon is forgotten.
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

// merge counts a refusal with one like it; if there are too many different ones, with the newest of its namespace, or not at all. The caller holds the mutex.
func (n *Recorder) merge(r Refusal) bool {
	for i := range n.waiting {
		w := &n.waiting[i]
		if w.Key == r.Key && w.Token == r.Token && w.grant == r.grant && w.Act == r.Act && w.Code == r.Code && w.Target == r.Target {
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

// run records until nothing waits.
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
			case <-n.closing: // what waits is recorded now, or never
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

// record writes refusals to the store. What fails is left at that.
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
				continue // anybody can present any stamp: only keys that there are may leave a trace
			}
			for _, term := range rec.History {
				if term.Token == r.Token && term.Grant == r.grant { // a token alone can be made up
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

// Close records what waits, but tries for no more than half a second, twice.
func (n *Recorder) Close() {
	close(n.closing)
	n.flush()
	n.kill()
	n.flush()
}

func (n *Recorder) closed() bool {
	select {
	case <-n.closing:
		return true
	default:
		return false
	}
}

// flush waits, but not for long, for what is being recorded.
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
