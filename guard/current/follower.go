package current

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// Options shape a [Follower]. The zero Options are the defaults.
type Options struct {
	// Fresh is how long an answer is good while the store announces no acts.
	// Default: 1 second.
	Fresh time.Duration
	// Longest is how long an answer is good while it does. Default: 10 seconds.
	Longest time.Duration
	// Timeout bounds one question. Default: 2 seconds. When the store has not
	// answered, it is asked again after Fresh.
	Timeout time.Duration
	// MaxKeys is how many keys the follower remembers. Default: 65536.
	MaxKeys int
}

// Follower answers for a source whether stamps are current. It is safe for
// concurrent use. The zero Follower is not ready: see [Follow].
type Follower struct {
	from Source
	o    Options
	clk  clock.Clock
	ctx  context.Context // of questions and the subscription; ends with Close
	stop context.CancelFunc
	done sync.WaitGroup

	mu     sync.Mutex
	closed bool
	keys   map[string]*entry
	asked  uint64 // questions so far
	// heard numbers the subscription to acts that is up; 0: none is. An answer
	// from an earlier one may have missed an act.
	heard, subscriptions uint64
}

// entry is what the follower knows of a key. The follower's mutex guards it.
type entry struct {
	rec      tenure.Record // as last read, with the newest terms of its history; zero if never
	now      time.Time     // the source's time then
	at       clock.Instant // the same moment here
	heard    uint64        // the subscription that was up then; 0: none was
	outdated bool          // an act has been announced since
	err      error         // of the newest question, if it failed
	failed   clock.Instant // when it did
	asking   *question     // nil: none is under way
}

// question is one look at the store, for all who wait for it.
type question struct {
	number uint64
	done   chan struct{} // closed when the rest is set
	late   bool          // an act came meanwhile: ask again
	rec    tenure.Record
	now    time.Time
	err    error
}

// Follow begins to follow the keys of a source. Close the follower before the
// source. A source that is also a [store.Announcer] is asked less often. The
// error matches fence.ErrInvalid.
func Follow(from Source, o Options) (*Follower, error) {
	for _, d := range []struct {
		name  string
		value *time.Duration
		usual time.Duration
	}{{"Fresh", &o.Fresh, time.Second}, {"Longest", &o.Longest, 10 * time.Second}, {"Timeout", &o.Timeout, 2 * time.Second}} {
		if *d.value == 0 {
			*d.value = d.usual
		}
		if *d.value < 0 {
			return nil, fmt.Errorf("%w %s %s: it must be more than 0", fence.ErrInvalid, d.name, *d.value)
		}
	}
	if o.MaxKeys == 0 {
		o.MaxKeys = 1 << 16
	}
	if o.MaxKeys < 0 {
		return nil, fmt.Errorf("%w MaxKeys %d: it must be more than 0", fence.ErrInvalid, o.MaxKeys)
	}
	return follow(from, o, clock.System()), nil
}

func follow(from Source, o Options, clk clock.Clock) *Follower {
	f := &Follower{from: from, o: o, clk: clk, keys: map[string]*entry{}}
	f.ctx, f.stop = context.WithCancel(context.Background())
	if announcer, ok := from.(store.Announcer); ok {
		f.done.Go(func() { f.listen(announcer) })
	}
	return f
}

var _ guard.Current = (*Follower)(nil)

// Close ends the questions that are under way, and waits for them.
func (f *Follower) Close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.stop()
	f.done.Wait()
}

// errClosed answers whoever asks a follower that is closed.
var errClosed = store.Unknown(errors.New("nobody follows the leases any more"))

// Check implements guard.Current.
func (f *Follower) Check(ctx context.Context, stamp fence.Stamp) error {
	if err := stamp.Check(); err != nil {
		return err
	}
	f.mu.Lock()
	arrived := f.asked
	f.mu.Unlock()
	for {
		f.mu.Lock()
		if f.closed {
			f.mu.Unlock()
			return errClosed
		}
		e := f.entry(stamp.Key)
		if err, known := f.known(e, stamp); known {
			f.mu.Unlock()
			return err
		}
		q := f.ask(e, stamp.Key)
		f.mu.Unlock()
		select {
		case <-q.done:
		case <-ctx.Done():
			return store.Unknown(context.Cause(ctx))
		}
		switch {
		case q.err != nil:
			return q.err
		case q.late: // an act came meanwhile
		case q.number > arrived: // it was asked for this stamp, or after it came
			return q.rec.Current(stamp, q.now)
		}
	}
}

// known decides on a stamp by what is known of its key, if that is enough.
func (f *Follower) known(e *entry, stamp fence.Stamp) (refusal error, known bool) {
	if stamp.Token < e.rec.Token { // tokens only rise
		return e.rec.Current(stamp, e.now), true
	}
	age := f.clk.Now().Sub(e.at)
	if stamp.Token == e.rec.Token && f.good(e, age) {
		return e.rec.Current(stamp, e.now.Add(age)), true
	}
	if e.err != nil && f.clk.Now().Sub(e.failed) <= f.o.Fresh {
		return e.err, true
	}
	return nil, false
}

// good reports whether an answer of that age can still be used.
func (f *Follower) good(e *entry, age time.Duration) bool {
	if e.rec.State == tenure.Held && !e.rec.Alive(e.now.Add(age)) {
		return false // it may have been renewed
	}
	if e.heard != 0 && e.heard == f.heard {
		return !e.outdated && age <= f.o.Longest
	}
	return !e.outdated && age <= f.o.Fresh
}

// entry finds what is known of a key.
func (f *Follower) entry(key string) *entry {
	e := f.keys[key]
	if e == nil {
		if len(f.keys) >= f.o.MaxKeys {
			f.forget()
		}
		e = &entry{}
		f.keys[key] = e
	}
	return e
}

// forget makes room: first by answers that have aged, then by any others.
func (f *Follower) forget() {
	now := f.clk.Now()
	for key, e := range f.keys {
		if e.asking == nil && now.Sub(e.at) > f.o.Longest && now.Sub(e.failed) > f.o.Fresh {
			delete(f.keys, key)
		}
	}
	for key, e := range f.keys {
		if len(f.keys) < f.o.MaxKeys {
			return
		}
		if e.asking == nil {
			delete(f.keys, key)
		}
	}
}

// remembered is how many terms of a key the follower keeps, to tell a replaced
// owner who replaced it.
const remembered = 4

// ask joins the question about a key that is under way, or begins one.
func (f *Follower) ask(e *entry, key string) *question {
	if e.asking != nil {
		return e.asking
	}
	f.asked++
	q := &question{number: f.asked, done: make(chan struct{})}
	e.asking = q
	heard := f.heard
	f.done.Go(func() {
		defer close(q.done)
		ctx, cancel := context.WithTimeout(f.ctx, f.o.Timeout)
		defer cancel()
		at := f.clk.Now()
		q.rec, q.err = f.from.Get(ctx, key)
		if q.err == nil {
			at = f.clk.Now() // before the source reads its clock
			q.now, q.err = timeAt(ctx, f.from, q.rec)
		}
		if q.err != nil {
			q.err = store.Unknown(q.err)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		e.asking = nil
		e.err, e.failed = q.err, f.clk.Now()
		if q.err != nil || q.rec.Token < e.rec.Token { // a store that forgets is not believed
			return
		}
		e.rec, e.now, e.at, e.heard, e.outdated = q.rec, q.now, at, heard, q.late
		e.rec.History = slices.Clone(e.rec.History[max(0, len(e.rec.History)-remembered):])
	})
	return q
}

const (
	// leastPause and mostPause bound the time between two tries to subscribe.
	leastPause = time.Second
	mostPause  = time.Minute
)

// listen hears of operators' acts until the follower closes.
func (f *Follower) listen(announcer store.Announcer) {
	pause := leastPause
	for f.ctx.Err() == nil {
		acts, err := announcer.Acts(f.ctx)
		if err == nil {
			pause = leastPause
			f.subscribed(true)
			for key := range acts {
				f.acted(key)
			}
			f.subscribed(false)
		}
		timer := f.clk.Timer(pause)
		select {
		case <-timer.C():
		case <-f.ctx.Done():
		}
		timer.Stop()
		pause = min(2*pause, mostPause)
	}
}

// subscribed takes note that acts are announced from now on, or no longer.
func (f *Follower) subscribed(up bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.heard = 0
	if up {
		f.subscriptions++
		f.heard = f.subscriptions
	}
}

// acted makes the follower ask again about a key.
func (f *Follower) acted(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.keys[key]
	if e == nil {
		return
	}
	e.outdated = true
	if e.asking != nil {
		e.asking.late = true
	}
}
