package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/renewal"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// world runs several engines on one store, from a seed. Batches arrive late,
// get lost and are answered late. Callers come, leave and release.
type world struct {
	t       *testing.T
	random  *rand.Rand
	rigs    []*rig
	now     clock.Instant
	agenda  []happening // sorted by time
	faulty  bool
	calls   []*Call
	held    []*Lease
	granted int
	faults  []*tenure.Request // acquires that have certainly changed nothing
	sent    map[*rig][]*Batch // in flight
}

// seeds is how many worlds are tried.
var seeds = 150

type happening struct {
	at clock.Instant
	do func()
}

func (w *world) after(d time.Duration, do func()) {
	at := w.now.Add(d)
	i, _ := slices.BinarySearchFunc(w.agenda, at, func(h happening, at clock.Instant) int {
		if h.at <= at {
			return -1
		}
		return 1
	})
	w.agenda = slices.Insert(w.agenda, i, happening{at, do})
}

// upTo returns a random time up to d.
func (w *world) upTo(d time.Duration) time.Duration {
	return time.Duration(w.random.Int64N(int64(d) + 1))
}

func (w *world) chance(percent int) bool { return w.random.IntN(100) < percent }

// told carries out what an engine wants done.
func (w *world) told(r *rig) {
	r.now = w.now
	r.take()
	for len(r.flying) > 0 {
		b := r.next()
		w.inspect(r, b)
		w.carry(r, b)
	}
	w.wantNoNeedlessWait(r)
	for _, c := range r.ready.Raise {
		w.after(w.upTo(time.Second), func() {
			r.e.Raised(w.now, c, 0, nil)
			w.told(r)
		})
	}
	for _, key := range r.ready.Watch {
		w.after(w.upTo(time.Second), func() {
			r.e.Hint(w.now, key, []Hint{Watched, Broken, Unsupported}[w.random.IntN(3)], nil)
			w.told(r)
		})
	}
	replies := r.ready.Replies
	r.ready = Ready{}
	for _, c := range replies {
		if l := c.Reply.Lease; l != nil && c.Reply.Err == nil && c.Request.Verb == tenure.Acquire {
			w.granted++
			w.held = append(w.held, l)
			w.after(w.upTo(20*time.Second), func() { w.giveBack(r, l) })
			for w.chance(50) {
				w.after(w.upTo(20*time.Second), func() { w.retime(r, l) })
			}
		}
		if store.IsFault(c.Reply.Err) && c.Request.Verb == tenure.Acquire {
			w.faults = append(w.faults, c.attempt.request)
		}
	}
}

// inspect checks a batch that is about to be sent against those in flight.
func (w *world) inspect(r *rig, b *Batch) {
	w.t.Helper()
	for _, req := range b.requests {
		if req.class != b.requests[0].class || req.class == alone && len(b.requests) > 1 {
			w.t.Errorf("requests of classes %d and %d go together, %d in all", req.class, b.requests[0].class, len(b.requests))
		}
	}
	young, old := w.inFlight(r)
	switch {
	case len(young)+old >= maxInFlight:
		w.t.Errorf("a batch is sent while %d are in flight", len(young)+old)
	case len(young) > 0:
		w.t.Errorf("a batch is sent while %d are in flight that do not hang", len(young))
	}
	w.sent[r] = append(w.sent[r], b)
}

// inFlight returns the batches in flight that do not hang, and how many do.
func (w *world) inFlight(r *rig) (young []*Batch, old int) {
	for _, b := range w.sent[r] {
		if w.now.Sub(b.sent) < time.Second {
			young = append(young, b)
		} else {
			old++
		}
	}
	return young, old
}

// wantNoNeedlessWait checks that requests wait only for a batch that does not
// hang, or because too many do.
func (w *world) wantNoNeedlessWait(r *rig) {
	w.t.Helper()
	young, old := w.inFlight(r)
	if r.e.Load().Waiting > 0 && len(young) == 0 && old < maxInFlight {
		w.t.Errorf("at %s %d requests wait for nothing; %d batches hang", time.Duration(w.now), r.e.Load().Waiting, old)
	}
}

func (w *world) giveBack(r *rig, l *Lease) {
	c := &Call{
		Request: tenure.Request{Verb: tenure.Release, Key: l.Key, Secret: l.Secret, Failed: w.chance(20)},
		Lease:   l, Bound: 2 * time.Second,
	}
	w.begin(r, c)
	if w.chance(10) {
		w.begin(r, &Call{Request: c.Request, Lease: l, Bound: 2 * time.Second})
	}
}

// retime changes a lease's TTL, by its holder or by another process.
func (w *world) retime(r *rig, l *Lease) {
	req := tenure.Request{Verb: tenure.Renew, Key: l.Key, Secret: l.Secret, TTL: time.Second + w.upTo(12*time.Second)}
	switch {
	case w.chance(50):
		r.apply([]tenure.Request{req}, w.now)
	case l.Lost == nil && l.policy.Fits(req.TTL):
		w.begin(r, &Call{Request: req, Lease: l, Bound: 10 * time.Second})
	}
}

// carry takes a batch to the store and its answers back.
func (w *world) carry(r *rig, b *Batch) {
	there, back := w.upTo(5*time.Millisecond), w.upTo(5*time.Millisecond)
	arrives, returns := true, true
	if w.faulty {
		if w.chance(10) {
			there = w.upTo(4 * time.Second)
		}
		if w.chance(10) {
			back = w.upTo(4 * time.Second)
		}
		arrives, returns = !w.chance(10), !w.chance(10)
	}
	answers := store.Failed(len(b.Requests), errLost)
	if w.faulty && w.chance(15) { // it certainly changes nothing
		arrives, returns, answers = false, true, store.Failed(len(b.Requests), errFault)
	}
	if arrives {
		w.after(there, func() {
			carriedOut := r.apply(b.Requests, w.now)
			if returns {
				answers = carriedOut
			}
		})
	}
	if !returns || !arrives && !store.IsFault(answers[0].Err) {
		back = 5*time.Second - there // the call times out
	}
	w.after(there+back, func() {
		w.sent[r] = slices.DeleteFunc(w.sent[r], func(other *Batch) bool { return other == b })
		r.e.Answered(w.now, b, answers)
		w.told(r)
	})
}

func (w *world) begin(r *rig, c *Call) {
	w.calls = append(w.calls, c)
	r.e.Begin(w.now, c)
	w.told(r)
	if w.faulty && w.chance(20) {
		w.after(w.upTo(3*time.Second), func() {
			r.e.Abandon(w.now, c, context.Canceled)
			w.told(r)
		})
	}
}

// run lets time pass.
func (w *world) run(d time.Duration) {
	end := w.now.Add(d)
	for {
		next, who := end, -1
		for i, r := range w.rigs {
			if r.wake < next {
				next, who = r.wake, i
			}
		}
		if len(w.agenda) > 0 && w.agenda[0].at <= next {
			h := w.agenda[0]
			w.agenda = w.agenda[1:]
			w.now = max(w.now, h.at)
			h.do()
		} else if who >= 0 {
			w.now = max(w.now, next)
			w.rigs[who].e.Tick(w.now)
			w.told(w.rigs[who])
		} else {
			w.now = end
			return
		}
		w.judge()
	}
}

// judge checks that no key has two holders with authority, and that no holder's
// deadline is later than the store's.
func (w *world) judge() {
	w.held = slices.DeleteFunc(w.held, func(l *Lease) bool { return l.Lost != nil })
	holders := map[string]*Lease{}
	for _, l := range w.held {
		if w.now >= l.renewer.Ends() {
			continue
		}
		if other := holders[l.Key]; other != nil {
			w.t.Fatalf("at %s both tokens %d and %d hold %q", time.Duration(w.now), other.Token, l.Token, l.Key)
		}
		holders[l.Key] = l
		rec := w.rigs[0].records[l.Key]
		if local := storeEpoch.Add(time.Duration(l.Deadline())); local.After(rec.Deadline) {
			w.t.Fatalf("at %s token %d counts on %q until %s, the store until %s", time.Duration(w.now), l.Token, l.Key,
				local, rec.Deadline)
		}
	}
}

func TestEnginesOnOneStoreFromASeed(t *testing.T) {
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := &world{t: t, random: rand.New(rand.NewPCG(seed, 1)), faulty: true, sent: map[*rig][]*Batch{}}
			s, number := &shelf{records: map[string]tenure.Record{}}, new(int)
			for range 3 {
				r := newRigOn(t, s, number, w.random.Float64)
				r.wake, r.e.o.Acts = renewal.Never, true
				w.rigs = append(w.rigs, r)
			}
			for range 60 {
				r, c := w.rigs[w.random.IntN(3)], newAcquire(fmt.Sprint("key", w.random.IntN(4)), 0)
				switch w.random.IntN(3) {
				case 0:
					c.WaitFor = w.upTo(30 * time.Second)
				case 1:
					c.WaitFor = Forever
				}
				c.Request.TTL = 3*time.Second + w.upTo(10*time.Second)
				c.Policy.TTL, c.Guarded = c.Request.TTL, w.chance(30)
				if w.chance(30) {
					c.Policy.Notice = w.upTo(c.Policy.TTL / 2)
				}
				if w.chance(20) {
					c.Seen = new(fence.Token)
				}
				w.after(w.upTo(time.Minute), func() { w.begin(r, c) })
			}
			w.run(2 * time.Minute)
			w.faulty = false
			w.run(20 * time.Minute)
			for _, c := range w.calls {
				if c.state != done {
					t.Errorf("a call to %s %q has no reply: %+v, attempt %+v", c.Request.Verb, c.Request.Key, c, c.attempt)
				}
			}
			for _, req := range w.faults {
				rec := s.records[req.Key]
				if slices.ContainsFunc(rec.History, func(t tenure.Term) bool { return t.Grant == req.Secret.Grant() }) {
					t.Errorf("an acquire of %q that ended with a fault was granted", req.Key)
				}
			}
			if w.granted == 0 {
				t.Error("nothing was granted")
			}
			for i, r := range w.rigs {
				if e := r.e; e.active != 0 || len(e.alarms) != 0 || len(e.queues) != 0 || len(e.leases) != 0 || !e.pipeline.empty() || len(e.pipeline.flying) != 0 {
					t.Errorf("engine %d is left with %d active, %d alarms, %d queues, %d leases, pipeline %+v",
						i, e.active, len(e.alarms), len(e.queues), len(e.leases), e.pipeline)
				}
			}
		})
		if t.Failed() {
			return
		}
	}
}
