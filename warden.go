package croft

import (
	"container/heap"
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/keep"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

const (
	// glance is how long the warden sleeps at most while there are leases: timers stand still during suspend.
	glance = time.Second
	// mostAlone bounds how many leases of one batch are renewed in calls of their own after the store skipped them.
	mostAlone = 8
	// mostLooks bounds how many records are read at a time.
	mostLooks = 16
	// atOnce is before every instant.
	atOnce clock.Instant = math.MinInt64
)

// warden keeps all leases of a client, in one goroutine that exists while there are any, and up to a glance longer: one short lease after another need not
// start it each time. Leases whose renewals fall near each other are renewed in one batch, or a few, and stay together from then on.
type warden struct {
	c    *Client
	poke chan struct{}

	mu      sync.Mutex
	leases  byWake
	running bool
	rising  clock.Instant // when the goroutine looks at the heap again, if it is not poked before; atOnce while it is up
	closed  bool
}

// due is what the machines want done, gathered under the mutex and carried out without it.
type due struct {
	renew   [alone + 1][]*Lease // by lane
	stalled []*Lease            // to look at
	ended   []*Lease
	events  []Event
}

// add begins to keep a lease.
func (w *warden) add(l *Lease, now clock.Instant) {
	var d due
	w.mu.Lock()
	if w.closed {
		w.take(l, keep.Ended{Loss: keep.Closed}, now, &d)
	} else {
		heap.Push(&w.leases, l)
		if !w.running {
			w.running, w.rising = true, atOnce
			w.c.fork(w.run)
		}
		w.nudge(now)
	}
	w.mu.Unlock()
	w.carryOut(d)
}

// run ticks until there has been no lease for a glance.
func (w *warden) run() {
	for idle := false; ; {
		now := w.c.clk.Now()
		w.mu.Lock()
		if len(w.leases) == 0 && (idle || w.closed) {
			w.running = false
			w.mu.Unlock()
			return
		}
		sleep := glance
		idle = len(w.leases) == 0
		if !idle {
			sleep = min(sleep, w.leases[0].keeper.Wake().Sub(now))
		}
		w.rising = now.Add(sleep)
		w.mu.Unlock()

		if sleep > 0 {
			timer := w.c.clk.Timer(sleep)
			select {
			case <-timer.C():
			case <-w.poke:
				idle = false
			}
			timer.Stop()
		}
		w.mu.Lock()
		w.rising = atOnce
		w.mu.Unlock()
		w.tick()
	}
}

// tick steps every machine that is due, and those that will be soon enough to go along.
func (w *warden) tick() {
	var d due
	now, jitter := w.c.clk.Now(), w.c.random()
	w.mu.Lock()
	if len(w.leases) > 0 && w.leases[0].keeper.Wake() <= now { // company is for those who go anyway
		for len(w.leases) > 0 && w.leases[0].keeper.Early() <= now {
			l := w.leases[0]
			w.take(l, keep.Tick{Jitter: jitter}, now, &d)
		}
	}
	w.mu.Unlock()
	w.carryOut(d)
}

// step tells one machine of an event.
func (w *warden) step(l *Lease, e keep.Event) {
	var d due
	w.mu.Lock()
	w.take(l, e, w.c.clk.Now(), &d)
	w.mu.Unlock()
	w.carryOut(d)
}

// check ends a lease whose time is over, if nobody has noticed yet, and its context, if whoever noticed has not got to it yet. It returns the loss.
func (w *warden) check(l *Lease) *LostError {
	w.mu.Lock()
	lives := l.lost == nil
	over := lives && w.c.clk.Now() >= l.keeper.Ends()
	w.mu.Unlock()
	if lives && !over {
		return nil
	}
	if over {
		w.step(l, keep.Tick{Jitter: w.c.random()})
	}
	return l.end()
}

// close ends all leases, and keeps no more.
func (w *warden) close() {
	var d due
	now := w.c.clk.Now()
	w.mu.Lock()
	w.closed = true
	for len(w.leases) > 0 {
		w.take(w.leases[0], keep.Ended{Loss: keep.Closed}, now, &d)
	}
	w.nudge(now) // nothing is left to run for
	w.mu.Unlock()
	w.carryOut(d)
}

// take tells a machine of an event, and sorts what it then wants. The caller holds the mutex.
func (w *warden) take(l *Lease, e keep.Event, now clock.Instant, d *due) {
	o := l.keeper.Step(e, now)
	switch {
	case o.Lost != "":
		l.lost = &LostError{Key: l.Key(), Token: l.Token(), Loss: Loss(o.Lost), Err: o.Err}
		d.ended = append(d.ended, l)
		if l.index >= 0 {
			heap.Remove(&w.leases, l.index)
		}
	case o.Renew && l.alone:
		d.renew[alone] = append(d.renew[alone], l)
	case o.Renew && o.Again:
		d.renew[again] = append(d.renew[again], l)
	case o.Renew:
		d.renew[fresh] = append(d.renew[fresh], l)
	case o.Look:
		d.stalled = append(d.stalled, l)
	}
	if l.index >= 0 {
		heap.Fix(&w.leases, l.index)
		w.nudge(now)
	}
	if w.c.calls.observe == nil {
		return
	}
	if o.Renewed {
		d.events = append(d.events, Event{Kind: EventRenewed, Key: l.Key(), Token: l.Token(), TTL: l.deed.TTL, Margin: o.Margin, Idle: o.Idle})
	}
	if o.Failures > 0 {
		d.events = append(d.events, Event{
			Kind: EventRenewFailed, Key: l.Key(), Token: l.Token(), Failures: o.Failures,
			Margin: l.keeper.Deadline().Sub(now), Err: o.Err,
		})
	}
	if o.Lost != "" && o.Lost != keep.Released {
		d.events = append(d.events, Event{Kind: EventLost, Key: l.Key(), Token: l.Token(), Loss: Loss(o.Lost), Err: o.Err})
	}
}

// nudge lets the goroutine look at the heap again if it would otherwise do so too late. If it should be up already its timer has stood still, and nobody
// knows how long it will be. The caller holds the mutex.
func (w *warden) nudge(now clock.Instant) {
	inTime := len(w.leases) == 0 || w.leases[0].keeper.Wake() >= w.rising && now < w.rising
	if w.rising == atOnce || inTime && !w.closed {
		return
	}
	w.rising = atOnce
	select {
	case w.poke <- struct{}{}:
	default:
	}
}

// carryOut does what was gathered, without the mutex.
func (w *warden) carryOut(d due) {
	for _, l := range d.ended {
		lost := l.end()
		if lost.Loss != Released || lost.Err != nil { // else whoever releases it does so when that is done
			w.c.lines.vacate(l)
		}
		if lost.Err != nil {
			w.c.notOwned(tenure.Renew, l.Stamp(), w.c.o.Owner, lost.Err)
		}
	}
	w.renew(d.renew[fresh], fresh)
	w.renew(d.renew[again], again)
	for _, l := range d.renew[alone] {
		w.renew([]*Lease{l}, alone)
	}
	if stalled := d.stalled; len(stalled) > 0 {
		w.c.fork(func() { w.look(stalled) })
	}
	for _, e := range d.events {
		w.c.emit(e)
	}
}

// renew sends the renewals of some leases in as few batches as may be.
func (w *warden) renew(leases []*Lease, at lane) {
	for together := range slices.Chunk(leases, mostRenewals) {
		requests := make([]tenure.Request, len(together))
		for i, l := range together {
			requests[i] = tenure.Request{Verb: tenure.Renew, Key: l.Key(), Secret: l.deed.Secret}
		}
		w.c.calls.submit(&submission{requests: requests, lane: at, to: told(func(answers []store.Answer, sent clock.Instant) {
			w.renewed(together, answers, sent)
		})})
	}
}

// renewed takes the answers. Leases that the store skipped, while it answered for others, are renewed alone the next time.
func (w *warden) renewed(leases []*Lease, answers []store.Answer, sent clock.Instant) {
	skipped := 0
	for i := range answers {
		if !known(answers[i].Err) {
			skipped++
		}
	}
	single := skipped < len(leases) && skipped <= mostAlone
	var d due
	now := w.c.clk.Now()
	w.mu.Lock()
	for i, l := range leases {
		l.alone = !known(answers[i].Err) && (single || l.alone)
		l.confirmed(answers[i])
		w.take(l, keep.Answered{Sent: sent, Answer: answers[i]}, now, &d)
	}
	w.mu.Unlock()
	w.carryOut(d)
}

// look reads the records of stalled leases: another process may have reported progress. They may all have stalled at once, and have until their deadlines.
func (w *warden) look(leases []*Lease) {
	var wait sync.WaitGroup
	var next atomic.Int64
	for range min(len(leases), mostLooks) {
		wait.Go(func() {
			for i := next.Add(1); i <= int64(len(leases)); i = next.Add(1) {
				w.lookAt(leases[i-1])
			}
		})
	}
	wait.Wait()
}

func (w *warden) lookAt(l *Lease) {
	ctx, cancel := context.WithTimeout(l.Context(), w.c.o.CallTimeout)
	defer cancel()
	rec, err := w.c.st.Get(ctx, l.Key())
	if err != nil || rec.Grant != l.Stamp().Grant {
		return
	}
	if now, err := w.c.st.Now(ctx); err == nil {
		w.step(l, keep.Looked{Record: rec, Now: now})
	}
}

// confirm takes a record that the store has confirmed otherwise than by a renewal.
func (w *warden) confirm(l *Lease, a store.Answer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l.confirmed(a)
}

// confirmed keeps the newest record. Answers may overtake each other, and need not bring the history. The caller holds the warden's mutex.
func (l *Lease) confirmed(a store.Answer) {
	if a.Err != nil || a.Now.Before(l.recAt) || a.Record.Grant != l.rec.Grant {
		return
	}
	if a.Record.History == nil {
		a.Record.History = l.rec.History
	}
	l.rec, l.recAt = a.Record, a.Now
}

// byWake is a heap of leases, the one that is due next first.
type byWake []*Lease

func (h byWake) Len() int           { return len(h) }
func (h byWake) Less(i, j int) bool { return h[i].keeper.Wake() < h[j].keeper.Wake() }
func (h byWake) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *byWake) Push(x any) {
	l := x.(*Lease)
	l.index = len(*h)
	*h = append(*h, l)
}

func (h *byWake) Pop() any {
	l := (*h)[len(*h)-1]
	(*h)[len(*h)-1] = nil
	*h = (*h)[:len(*h)-1]
	l.index = -1
	return l
}
