package sim

import (
	"context"
	"strconv"
	"time"

	"github.com/croft-dev/croft/internal/objects"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/cas"
	"github.com/croft-dev/croft/tenure"
)

// casServer is a server that compares and swaps. It is a directory, or, with
// objects set, an object store whose clock shows whole seconds. Each client has
// the real store/cas, over a register that sends messages.
type casServer struct {
	*core
	objects bool
	swaps   int
	stores  map[*client]*cas.Store
}

func newCASServer(w *world, asObjects bool) *casServer {
	return &casServer{core: newCore(w, !asObjects), objects: asObjects, stores: map[*client]*cas.Store{}}
}

// of returns a client's store: a new one for each life.
func (v *casServer) of(c *client) *cas.Store {
	if v.stores[c] == nil {
		reg := &remote{v: v, c: c}
		options := &cas.Options{Retention: retention, SweepEvery: -1}
		if v.objects {
			reg.clock = objects.NewClock(time.Second, &c.host)
			v.stores[c] = cas.New(recalling{reg}, options)
		} else {
			v.stores[c] = cas.New(reg, options)
		}
	}
	return v.stores[c]
}

func (v *casServer) apply(c *client, requests []tenure.Request, done func([]store.Answer, error)) func() {
	began := v.w.now
	return apart(requests, func(req tenure.Request, done func(store.Answer)) func() {
		rt := newRoutine(v.of(c), req, began)
		c.routines = append(c.routines, rt)
		rt.step(func() {
			a := rt.answer
			if v.w.mutant.is("earliest-is-told") && a.Err == nil && req.Verb == tenure.Acquire &&
				a.Now.After(a.Record.Acquired) {
				a.Now = a.Now.Add(-time.Second)
			}
			done(a)
		})
		return rt.abandon
	}, done)
}

func (v *casServer) get(c *client, key string, done func(tenure.Record, time.Time, error)) {
	v.w.carry(v.conn(c), func(_ message, reply func(func())) {
		k, now := v.read(c, key), v.now()
		reply(func() { done(k.record, now, nil) })
	}, func(err error) { done(tenure.Record{}, time.Time{}, err) })
}

// read returns the entry that a read shows.
func (v *casServer) read(c *client, key string) kept {
	if v.objects { // no sweep runs there: the server itself drops old records
		v.held(key)
	}
	ago := upTo(c.rng, stalest)
	if v.w.fault(StaleRead) {
		return v.past(key, v.w.now-ago)
	}
	return v.records[key]
}

// remote is a register at the end of a network.
type remote struct {
	v      *casServer
	c      *client
	clock  *objects.Clock // only of an object store
	memory objects.Memory
}

var _ cas.Register = (*remote)(nil)

func (r *remote) conn(ctx context.Context) conn {
	l := r.v.conn(r.c)
	l.began = routineOf(ctx).began
	return l
}

// Load reads a record: one message.
func (r *remote) Load(ctx context.Context, key string) (cas.Entry, error) {
	var got struct {
		held cas.Entry
		err  error
	}
	if !await(ctx, func(finish func()) {
		r.load(ctx, key, func(e cas.Entry, err error) { got.held, got.err = e, err; finish() })
	}) {
		return cas.Entry{}, errGone
	}
	return got.held, got.err
}

func (r *remote) load(ctx context.Context, key string, done func(cas.Entry, error)) {
	v, sent := r.v, r.c.Now()
	v.w.ops++
	v.w.carry(r.conn(ctx), func(_ message, reply func(func())) {
		k, now := v.read(r.c, key), v.now()
		reply(func() { done(r.entry(k, now, sent), nil) })
	}, func(err error) { done(cas.Entry{}, err) })
}

// entry gives a read entry its time, as the kind of store does.
func (r *remote) entry(k kept, now time.Time, sent instant) cas.Entry {
	held := cas.Entry{Record: k.record, Version: k.version, Now: now}
	if !r.v.objects {
		return held
	}
	date := now.Truncate(time.Second)
	r.clock.Observe(sent, r.c.Now(), date)
	if r.v.w.mutant.is("date-is-exact") {
		held.Now = date
		return held
	}
	held.Now, held.Latest = r.clock.At(date)
	if !held.Record.IsZero() {
		held.Latest = objects.Latest(held, k.modified.Truncate(time.Second).Add(time.Second))
	}
	return held
}

// Swap replaces a version: one message, or as many as an object store needs.
func (r *remote) Swap(ctx context.Context, old cas.Version, next tenure.Record, _ bool) error {
	var got struct{ err error }
	s := &swap{r: r, ctx: ctx, req: routineOf(ctx).request, old: old, next: next}
	r.v.swaps++
	s.version = cas.Version(strconv.Itoa(r.v.swaps))
	if !await(ctx, func(finish func()) {
		s.done = func(err error) { got.err = err; finish() }
		s.put()
	}) {
		return errGone
	}
	return got.err
}

// Close closes nothing.
func (r *remote) Close() error { return nil }

// recalling is the register of an object store. It remembers its last writes.
type recalling struct{ *remote }

var _ cas.Recaller = recalling{}

// Recall returns the last write of this register.
func (r recalling) Recall(key string) (cas.Entry, bool) {
	rec, version, known := r.memory.Recall(key)
	if !known {
		return cas.Entry{}, false
	}
	held := cas.Entry{Record: rec, Version: version}
	held.Now, held.Latest, known = r.clock.Span()
	if r.v.w.mutant.is("date-is-exact") {
		held.Latest = time.Time{}
		return held, known
	}
	held.Latest = objects.Latest(held)
	return held, known
}
