package refusals

import (
	"context"
	"sync"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

const (
	// recordEvery is the shortest time between two writes to the store. A loop
	// that is refused a thousand times a second must not put load on the store.
	recordEvery = time.Second
	// retryEvery is the pause after a write that failed, if refusals of kind
	// Unsure wait for the store to come back.
	retryEvery = 5 * time.Second
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
	retry   bool          // the last write failed, and refusals were put back
	done    chan struct{} // closed when the goroutine ends; nil if there is none
}

// NewRecorder makes a recorder. Each call of the store takes at most timeout.
func NewRecorder(st store.Store, clk clock.Clock, timeout time.Duration) *Recorder {
	n := &Recorder{st: st, clk: clk, timeout: timeout, closing: make(chan struct{})}
	n.life, n.kill = context.WithCancel(context.Background())
	return n
}

// Add records a refusal soon. It returns at once and cannot fail: if the store
// does not take the refusal, it is forgotten. A refusal of kind [Unsure] waits
// until the store answers, because it says that the store did not.
func (n *Recorder) Add(r Refusal) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.put(r)
	if n.done == nil && n.life.Err() == nil {
		n.done = make(chan struct{})
		go n.run(n.done)
	}
}

// put puts a refusal into the queue. The caller holds the mutex.
func (n *Recorder) put(r Refusal) {
	if !n.merge(r) {
		n.waiting = append(n.waiting, r)
	}
}

// merge adds a refusal to an equal one in the queue. If the queue is full, it
// adds it to the newest of the same kind and namespace, or drops it. It returns
// false if the refusal needs an entry of its own in the queue. The caller holds
// the mutex.
func (n *Recorder) merge(r Refusal) bool {
	for i := range n.waiting {
		w := &n.waiting[i]
		if w.Key == r.Key && w.Token == r.Token && w.grant == r.grant &&
			w.Act == r.Act && w.Code == r.Code && w.Admitted == r.Admitted && w.Target == r.Target {
			w.Count += r.Count
			w.Newest = max(w.Newest, r.Newest)
			return true
		}
	}
	if len(n.waiting) < mostRefusals {
		return false
	}
	for i := len(n.waiting) - 1; i >= 0; i-- {
		w := &n.waiting[i]
		if w.Kind() == r.Kind() && fence.Namespace(w.Key) == fence.Namespace(r.Key) && w.Admitted == r.Admitted {
			w.Count += r.Count
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
			every := recordEvery
			if n.retry {
				every = retryEvery
			}
			pause = every - n.clk.Now().Sub(n.last)
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
		left := n.record(batch)
		n.mu.Lock()
		n.retry = len(left) > 0 && !n.closed()
		if n.retry {
			for _, r := range left {
				n.put(r)
			}
		}
		n.mu.Unlock()
	}
}

// record writes refusals to the store. It returns those of kind Unsure that the
// store did not take, and forgets the others.
func (n *Recorder) record(batch []Refusal) (left []Refusal) {
	ctx, cancel := context.WithTimeout(n.life, n.timeout)
	defer cancel()
	known := map[string]tenure.Record{}
	get := func(key string) (tenure.Record, error) {
		rec, read := known[key]
		if read {
			return rec, nil
		}
		rec, err := n.st.Get(ctx, key)
		if err == nil {
			known[key] = rec
		}
		return rec, err
	}
	var requests []tenure.Request
	var sent []Refusal
	totals := map[series]Refusal{}
	for _, r := range batch {
		if r.Owner == "" {
			rec, err := get(r.Key)
			if err != nil && r.Kind() == Unsure {
				left = append(left, r)
				continue
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
		noted, _ := get(r.reserved()) // without it, the count begins anew
		r = r.follow(noted, totals)
		if req, err := r.request(); err == nil {
			requests, sent = append(requests, req), append(sent, r)
		}
	}
	if len(requests) == 0 {
		return left
	}
	for i, answer := range n.st.Apply(ctx, requests) {
		if answer.Err != nil && sent[i].Kind() == Unsure {
			left = append(left, sent[i])
		}
	}
	return left
}

// series names the refusals that are counted together.
type series struct {
	key, act, code, target string
	admitted, known        bool // known if the owner is
}

func (r Refusal) series() series {
	return series{r.Key, r.Act, r.Code, store.Redact(r.Target), r.Admitted, r.Owner != ""}
}

// follow sets the total of a refusal: it goes on from the newest refusal of the
// same series, in the reserved record or earlier in the batch.
func (r Refusal) follow(noted tenure.Record, totals map[series]Refusal) Refusal {
	r.Total, r.Since = r.Count, time.Time{}
	last, found := totals[r.series()]
	if !found {
		for _, x := range In(noted) {
			if x.series() == r.series() && x.Total >= last.Total {
				last, found = x, true
			}
		}
	}
	if found {
		r.Total, r.Since = last.Total+r.Count, last.Since
	}
	totals[r.series()] = r
	return r
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
