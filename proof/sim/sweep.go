package sim

import (
	"context"
	"iter"
	"time"

	"github.com/croft-dev/croft/store/cas"
)

// sweep makes a client drop old records, as stores do by themselves now and
// then.
func (v *casServer) sweep(c *client) {
	rt := newSweep(v.of(c), v.w.now)
	c.routines = append(c.routines, rt)
	rt.step(func() {})
}

// ask sends one message of a sweep. serve is the step at the server. Between
// two messages the sweeper may be stopped for long.
func (r *remote) ask(ctx context.Context, serve func() error) error {
	var got struct{ err error }
	if !await(ctx, func(finish func()) {
		pause := upTo(r.c.rng, longestWait)
		if r.v.w.fault(PausedStep) {
			r.c.stop(pause)
		}
		r.c.soon(r.v.w.now, func() {
			r.v.w.carry(r.conn(ctx), func(_ message, reply func(func())) {
				err := serve()
				reply(func() { got.err = err; finish() })
			}, func(err error) { got.err = err; finish() })
		})
	}) {
		return errGone
	}
	return got.err
}

// Now reads the server's clock.
func (r *remote) Now(ctx context.Context) (now time.Time, err error) {
	var got struct{ now time.Time }
	err = r.ask(ctx, func() error { got.now = r.v.now(); return nil })
	return got.now, err
}

// Scan yields the entries of all keys at one moment.
func (r *remote) Scan(ctx context.Context) iter.Seq2[cas.Entry, error] {
	return func(yield func(cas.Entry, error) bool) {
		var entries []cas.Entry
		err := r.ask(ctx, func() error {
			entries = nil
			for _, key := range r.v.w.keys {
				if k := r.v.records[key]; !k.record.IsZero() {
					entries = append(entries, cas.Entry{Record: k.record, Version: k.version, Now: r.v.now()})
				}
			}
			return nil
		})
		if err != nil {
			yield(cas.Entry{}, err)
			return
		}
		for _, e := range entries {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// Drop removes a key's entry, if it still has that version.
func (r *remote) Drop(ctx context.Context, key string, old cas.Version) error {
	return r.ask(ctx, func() error {
		k := r.v.records[key]
		if k.record.IsZero() || k.version != old && !r.v.w.mutant.is("blind-drop") {
			return cas.ErrConflict
		}
		r.v.forget(key)
		return nil
	})
}
