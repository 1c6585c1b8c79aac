package croft

import (
	"context"
	"sync"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/clock"
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

// Refused notes in the store, for operators, that a guard refused a write with this stamp: "croft inventory" and "croft watch" show it, and [ReadRefusals] reads it. target is
// the guard's. An err that is nil, or no refusal of a fence or of the law, is not noted.
//
// It returns at once and cannot fail. What it notes is recorded in the background, at best, and only of keys that the store knows: alike ones are counted together, a client records at most a few every second, and
// what the store does not take then is forgotten. The client notes by itself when its own renewals, reports and releases are refused.
func (c *Client) Refused(stamp fence.Stamp, target string, err error) {
	if err == nil {
		return
	}
	if r, ok := refusalOf(stamp, target, err); ok {
		c.refusals.add(r)
	}
}

// notOwned notes that a request by a lease's holder was refused.
func (c *Client) notOwned(verb tenure.Verb, stamp fence.Stamp, owner string, err error) {
	if err == nil {
		return
	}
	if r, ok := refusalOf(stamp, "", err); ok && r.Code == "not_owned" {
		r.Act, r.Owner = string(verb), owner
		c.refusals.add(r)
	}
}

// recorder notes refusals in the store, in a goroutine that exists while there is something to note. Its calls are its own: they delay no lease's.
type recorder struct {
	c *Client

	mu      sync.Mutex
	waiting []Refusal
	last    clock.Instant // when some were last recorded
	began   bool          // last counts
	done    chan struct{} // closed when the goroutine has ended; nil if there is none
}

func (n *recorder) add(r Refusal) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.merge(r) {
		n.waiting = append(n.waiting, r)
	}
	if n.done == nil && n.c.life.Err() == nil {
		n.done = make(chan struct{})
		go n.run(n.done)
	}
}

// merge counts a refusal with one like it; if there are too many different ones, with the newest of its namespace, or not at all. The caller holds the mutex.
func (n *recorder) merge(r Refusal) bool {
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
		if refusedKey(n.waiting[i].Key) == refusedKey(r.Key) {
			n.waiting[i].Count += r.Count
			break
		}
	}
	return true
}

// run records until nothing waits.
func (n *recorder) run(done chan struct{}) {
	defer close(done)
	for {
		n.mu.Lock()
		pause := time.Duration(0)
		if n.began {
			pause = recordEvery - n.c.clk.Now().Sub(n.last)
		}
		n.mu.Unlock()
		if pause > 0 && !isClosed(n.c.closing) {
			timer := n.c.clk.Timer(pause)
			select {
			case <-timer.C():
			case <-n.c.closing: // what waits is recorded now, or never
			}
			timer.Stop()
		}
		n.mu.Lock()
		batch := n.waiting
		n.waiting = nil
		if len(batch) == 0 || n.c.life.Err() != nil {
			n.done = nil
			n.mu.Unlock()
			return
		}
		n.last, n.began = n.c.clk.Now(), true
		n.mu.Unlock()
		n.record(batch)
	}
}

// record writes refusals to the store. What fails is left at that.
func (n *recorder) record(batch []Refusal) {
	ctx, cancel := context.WithTimeout(n.c.life, n.c.o.CallTimeout)
	defer cancel()
	known := map[string]tenure.Record{}
	var requests []tenure.Request
	for _, r := range batch {
		if r.Owner == "" {
			rec, read := known[r.Key]
			if !read {
				rec, _ = n.c.st.Get(ctx, r.Key)
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
		n.c.st.Apply(ctx, requests)
	}
}

// flush waits, but not for long, for what is being recorded. The client is closing.
func (n *recorder) flush() {
	n.mu.Lock()
	done := n.done
	n.mu.Unlock()
	if done != nil {
		n.c.wait(done, recordBound)
	}
}
