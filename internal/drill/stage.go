package drill

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/croft-dev/croft/tenure"
)

// stage is the state of one scene while it is played: its key, its file, its
// workers, and its results.
type stage struct {
	*director
	Scene
	path, target string
	cast         map[string]*worker
	events       []Event // with times on this machine's clock
	// busy asks to play the scene again: the machine was too slow for it to
	// prove anything.
	busy bool
}

// note records an event that has just happened.
func (s *stage) note(owner string, k EventKind) {
	s.events = append(s.events, Event{Owner: owner, Kind: k, At: time.Now()})
}

// step records the result of one try. It reports whether the result is OK. If
// not, the caller leaves out the steps that depend on it.
func (s *stage) step(name, tried, expected string, v verdict) bool {
	s.Steps = append(s.Steps, Step{
		Name: s.Name + "/" + name, Tried: tried, Expected: expected, Happened: v.happened, Result: v.result,
		Unknown: v.unknown, Before: v.before, After: v.after, Lost: v.lost,
	})
	s.busy = s.busy || v.busy
	return v.result == OK
}

// spoilt reports whether the scene proves nothing and has found nothing wrong.
func (s *stage) spoilt() bool {
	return s.busy && !s.o.wrong(s.Steps)
}

// wrong reports whether a step found something that must not happen.
func (o *Options) wrong(steps []Step) bool {
	return slices.ContainsFunc(steps, func(step Step) bool {
		return step.Result == Failed || step.Result == Corrupted && !o.Unguarded
	})
}

// stale is step for an act of A, the old owner.
func (s *stage) stale(name, tried, expected string, v verdict) {
	switch {
	case v.result == Corrupted:
		s.note("A", Overwrote)
	case v.result == OK && v.bounced:
		s.note("A", Bounced)
	case v.result == OK:
		s.note("A", Refused)
	}
	s.step(name, tried, expected, v)
}

// acquire is the order to acquire the scene's key.
func (s *stage) acquire(wait time.Duration) order {
	return order{Do: doAcquire, Key: s.Key, Target: s.target, Path: s.path, TTL: s.o.TTL, Wait: wait}
}

// await is how long to wait for a key that becomes free by itself. It only
// keeps the drill from hanging.
func (s *stage) await() time.Duration { return 3*s.o.TTL + s.patience }

// ends is the order to wait for the end of the lease. Without renewal the lease
// lasts no longer than its TTL.
func (s *stage) ends() order { return order{Do: doEnd, Wait: 2*s.o.TTL + 5*time.Second} }

// write gives an order that may change the file. It returns the reply, and the
// file's content before and after.
func (s *stage) write(ctx context.Context, w *worker, o order) (r reply, before, after string) {
	before, err := content(s.path)
	if err == nil {
		r = w.call(ctx, o)
		after, err = content(s.path)
	}
	if err != nil {
		r.Err = failureOf(err)
	}
	return r, before, after
}

// publishes lets the present owner write, and judges that it worked.
func (s *stage) publishes(ctx context.Context, w *worker, text string) verdict {
	r, _, after := s.write(ctx, w, order{Do: doWrite, Text: text})
	v := written(r, text, after)
	if v.result == OK {
		s.note(w.owner, Wrote)
	}
	return v
}

// overwrites lets an old owner write, and judges that the write is refused.
func (s *stage) overwrites(ctx context.Context, w *worker, text, holder string) verdict {
	r, before, after := s.write(ctx, w, order{Do: doWrite, Text: text})
	return bounced(r, before, after, holder)
}

// record reads the scene's record and the store's time, directly from the
// store.
func (s *stage) record(ctx context.Context) (rec tenure.Record, now time.Time, f *failure) {
	ctx, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	rec, err := s.o.Store.Get(ctx, s.Key)
	if err == nil {
		now, err = s.o.Store.Now(ctx)
	}
	return rec, now, failureOf(err)
}

// untouched judges that a grant still holds the key.
func (s *stage) untouched(ctx context.Context, mine tenure.Record) verdict {
	rec, now, f := s.record(ctx)
	if f != nil {
		return notDone(f)
	}
	return holds(rec, mine, now)
}

// goesOn judges that the present owner has lost nothing: it renews, writes and
// releases.
func (s *stage) goesOn(ctx context.Context, w *worker, text string) verdict {
	return accepted(w.call(ctx, order{Do: doRenew}), "renewed").
		then(func() verdict { return s.publishes(ctx, w, text) }).
		then(func() verdict { return accepted(w.call(ctx, order{Do: doRelease}), "released") })
}

// leave stops, kills or cuts off a worker by calling how.
func (s *stage) leave(w *worker, how func() error, say string) *failure {
	if err := how(); err != nil {
		return failureOf(fmt.Errorf("%s could not be stopped: %w", w.owner, err))
	}
	s.note(w.owner, Left)
	s.say(s.Name, say)
	return nil
}

// offset measures how far the store's clock is ahead of this machine's. The
// true value is offset, or less by at most doubt, because an answer takes time.
func (d *director) offset(ctx context.Context) (offset, doubt time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, d.patience)
	defer cancel()
	for i := range 3 { // the quickest answer is the most exact
		before := time.Now()
		now, err := d.o.Store.Now(ctx)
		if err != nil {
			return 0, 0, err
		}
		if took := time.Since(before); i == 0 || took < doubt {
			offset, doubt = now.Sub(before), took
		}
	}
	return offset, doubt, nil
}

// owners fills in who held the key when, from the store's history, and puts
// the events on the store's clock.
func (s *stage) owners(ctx context.Context) {
	rec, now, f := s.record(ctx)
	offset, _, err := s.offset(ctx)
	if f != nil || err != nil {
		return
	}
	// Owners write before they release. If a write seems to be later, the
	// offset is too large by that much: a store's clock may go in steps of
	// milliseconds.
	late := time.Duration(0)
	for _, t := range rec.History {
		for _, e := range s.events {
			if e.Kind == Wrote && e.Owner == t.Owner && t.Ended == tenure.EndReleased {
				late = max(late, e.At.Add(offset).Sub(t.Finished))
			}
		}
	}
	offset -= late
	for _, w := range s.cast {
		for _, at := range w.renewals() {
			s.events = append(s.events, Event{Owner: w.owner, Kind: Renewed, At: at})
		}
	}
	for i := range s.events {
		s.events[i].At = s.events[i].At.Add(offset)
	}
	for _, t := range rec.History {
		term := Term{
			Owner: t.Owner, Token: t.Token, Cause: t.Cause,
			Acquired: t.Acquired, Finished: t.Finished, Ended: t.Ended,
		}
		if term.Finished.IsZero() {
			term.Finished = now
		}
		// Owners have one term each, so all events of an owner belong to this
		// term.
		for _, e := range s.events {
			if e.Owner != t.Owner {
				continue
			}
			switch e.Kind {
			case Left:
				term.Absent = append(term.Absent, Span{From: e.At})
			case Returned:
				term.Absent[len(term.Absent)-1].To = e.At
			case Refused, Bounced:
				term.Refused = append(term.Refused, e.At)
			}
		}
		s.Terms = append(s.Terms, term)
	}
	// A worker that was stopped before it saw the store's answer tells a wrong
	// time.
	s.events = slices.DeleteFunc(s.events, func(e Event) bool {
		return e.Kind == Renewed && !slices.ContainsFunc(s.Terms, func(t Term) bool {
			return t.Owner == e.Owner && e.At.Before(t.Finished)
		})
	})
	slices.SortStableFunc(s.events, func(a, b Event) int { return a.At.Compare(b.At) })
	s.Events = s.events
}

func (d *director) fileOf(scene string) (path, target string) {
	path = filepath.Join(d.dir, scene+".txt")
	if d.o.Unguarded {
		return path, ""
	}
	return path, d.o.Target(path)
}
