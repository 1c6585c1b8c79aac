package current

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/inject"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// Options shape a [Follower].
type Options struct {
	// MaxAge is how long an answer is good while the store announces acts.
	// Default: 10 seconds.
	MaxAge time.Duration
	// MaxSilentAge is how long an answer is good while the store announces
	// nothing. It is also the pause after a failed question. Default: 1 second.
	MaxSilentAge time.Duration
	// Timeout bounds one question. Default: 2 seconds.
	Timeout time.Duration
	// MaxKeys is how many keys the follower remembers, besides those that it is
	// asking about. Default: 65536.
	MaxKeys int
}

// Follower answers for a source whether stamps are current. It is safe for
// concurrent use. The zero Follower is not ready: see [Follow].
type Follower struct {
	from Source
	o    Options
	clk  clock.Clock
	ctx  context.Context // for questions and the subscription; ends with Close
	stop context.CancelFunc
	done sync.WaitGroup
	// slots has a token for each question that reads from the source.
	slots chan struct{}

	mu     sync.Mutex // guards the fields below and all entries
	closed bool
	keys   map[string]*entry
	asked  uint64 // questions so far
	// subscription is the number of the live subscription to acts, and 0 if
	// there is none. An answer read under another number may have missed an
	// act.
	subscription     uint64
	lastSubscription uint64 // the number of the newest subscription
}

// entry is what the follower knows about a key. The follower's mutex guards it.
type entry struct {
	// rec is the record as last read, with the newest terms of its history. It
	// is zero if none was read.
	rec          tenure.Record
	now          time.Time     // the source's time then
	at           clock.Instant // the same moment here
	subscription uint64        // the subscription that was live then
	outdated     bool          // an act has been announced since
	err          error         // of the newest question, if it failed
	asked        clock.Instant // when the newest question ended
	asking       *question     // nil: none is under way
	// refused is the stamp that the source has refused last, and why is the
	// reason. They are good for a moment, so that a refused owner does not ask
	// without pause.
	refused fence.Stamp
	why     error
}

// question is one look at the source. All callers that wait for it share it.
type question struct {
	number uint64
	ctx    context.Context // ends when the question takes too long
	done   chan struct{}   // closed when the rest is set
	// outdated is set if an act was announced meanwhile. The callers then ask
	// again.
	outdated bool
	rec      tenure.Record
	now      time.Time
	err      error
}

// Follow begins to follow the keys of a source. Close the follower before the
// source. A source that is also a [store.Announcer] is asked less often. The
// error matches fence.ErrInvalid.
func Follow(from Source, options *Options) (*Follower, error) {
	var o Options
	if options != nil {
		o = *options
	}
	if o.MaxAge < 0 || o.MaxSilentAge < 0 || o.Timeout < 0 || o.MaxKeys < 0 {
		return nil, fmt.Errorf("%w options of a follower: %+v: none may be negative", fence.ErrInvalid, o)
	}
	o.MaxAge = cmp.Or(o.MaxAge, 10*time.Second)
	o.MaxSilentAge = cmp.Or(o.MaxSilentAge, time.Second)
	o.Timeout = cmp.Or(o.Timeout, 2*time.Second)
	o.MaxKeys = cmp.Or(o.MaxKeys, 1<<16)
	return follow(from, o, clock.System()), nil
}

func init() {
	inject.Follow = func(
		from store.Store, maxAge, maxSilentAge, timeout time.Duration, clk clock.Clock,
	) inject.Follower {
		o := Options{MaxAge: maxAge, MaxSilentAge: maxSilentAge, Timeout: timeout, MaxKeys: 1 << 16}
		return follow(from, o, clk)
	}
}

func follow(from Source, o Options, clk clock.Clock) *Follower {
	f := &Follower{from: from, o: o, clk: clk, keys: map[string]*entry{}, slots: make(chan struct{}, mostQuestions)}
	f.ctx, f.stop = context.WithCancel(context.Background())
	if announcer, ok := from.(store.Announcer); ok {
		f.done.Go(func() { f.listen(announcer) })
	}
	return f
}

var _ guard.Current = (*Follower)(nil)

// mostQuestions is how many questions may be under way at once. Others wait for
// them.
const mostQuestions = 64

// Close ends the questions that are under way. It waits for them, but not for a
// source that ignores the end of its context.
func (f *Follower) Close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.stop()
	ended := make(chan struct{})
	go func() {
		f.done.Wait()
		close(ended)
	}()
	timer := f.clk.Timer(f.o.Timeout)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C():
	}
}

// errClosed answers a Check after Close.
var errClosed = store.Unknown(errors.New("the follower of the leases is closed"))

// Check implements guard.Current.
func (f *Follower) Check(ctx context.Context, stamp fence.Stamp) error {
	if err := stamp.Check(); err != nil {
		return err
	}
	var arrived uint64 // questions asked before this call
	for round := 0; ; round++ {
		f.mu.Lock()
		if f.closed {
			f.mu.Unlock()
			return errClosed
		}
		if round == 0 {
			arrived = f.asked
		}
		e := f.entry(stamp.Key)
		if known, err := f.known(e, stamp); known {
			f.mu.Unlock()
			return err
		}
		q := f.ask(e, stamp.Key)
		f.mu.Unlock()
		select {
		case <-q.done:
		case <-ctx.Done():
			return store.Unknown(context.Cause(ctx))
		case <-q.ctx.Done():
			select {
			case <-q.done:
			default: // the source ignores its context
				return store.Unknown(q.ctx.Err())
			}
		}
		switch {
		case q.err != nil:
			return q.err
		case q.outdated:
		case q.number > arrived: // it began after this call did
			return f.verdict(e, q, stamp)
		}
	}
}

// verdict decides on a stamp by an answer, and remembers a refusal.
func (f *Follower) verdict(e *entry, q *question, stamp fence.Stamp) error {
	err := q.rec.Current(stamp, q.now)
	if err != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		stamp.Seq = 0
		e.refused, e.why = stamp, err
	}
	return err
}

// refusedFor is how long a refusal is good for the same stamp. It is short,
// because the holder may resume a lease that has expired.
const refusedFor = 100 * time.Millisecond

// known decides on a stamp by the entry of its key. It reports false if the
// entry is not enough.
func (f *Follower) known(e *entry, stamp fence.Stamp) (known bool, refusal error) {
	if stamp.Token < e.rec.Token { // tokens only rise
		return true, e.rec.Current(stamp, e.now)
	}
	age := f.clk.Now().Sub(e.at)
	if stamp.Token == e.rec.Token && f.good(e, age) {
		return true, e.rec.Current(stamp, e.now.Add(age))
	}
	since := f.clk.Now().Sub(e.asked)
	if e.err != nil && since <= f.o.MaxSilentAge {
		return true, e.err
	}
	stamp.Seq = 0
	if e.err == nil && e.why != nil && stamp == e.refused && !e.outdated && since <= refusedFor {
		return true, e.why
	}
	return false, nil
}

// good reports whether an answer of that age can still be used: for MaxAge
// while acts are announced, for MaxSilentAge otherwise, and never past the
// lease's deadline.
func (f *Follower) good(e *entry, age time.Duration) bool {
	if e.rec.State == tenure.Held && !e.rec.Alive(e.now.Add(age)) {
		return false // the holder may have renewed the lease
	}
	if e.subscription != 0 && e.subscription == f.subscription {
		return !e.outdated && age <= f.o.MaxAge
	}
	return !e.outdated && age <= f.o.MaxSilentAge
}

// entry finds the entry of a key, or makes it.
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

// forget drops keys until an eighth of the room is free: first those with old
// answers, then any others.
func (f *Follower) forget() {
	now := f.clk.Now()
	for key, e := range f.keys {
		if e.asking == nil && now.Sub(e.asked) > f.o.MaxAge {
			delete(f.keys, key)
		}
	}
	for key, e := range f.keys {
		if len(f.keys) <= f.o.MaxKeys-f.o.MaxKeys/8 {
			return
		}
		if e.asking == nil {
			delete(f.keys, key)
		}
	}
}

// remembered is how many terms of a key the follower keeps. They tell a
// replaced owner who replaced it.
const remembered = 4

// ask joins the question about a key that is under way, or begins a new one.
func (f *Follower) ask(e *entry, key string) *question {
	if e.asking != nil {
		return e.asking
	}
	f.asked++
	q := &question{number: f.asked, done: make(chan struct{})}
	ctx, cancel := context.WithTimeout(f.ctx, f.o.Timeout)
	q.ctx, e.asking = ctx, q
	subscription := f.subscription
	f.done.Go(func() {
		defer cancel()
		defer close(q.done)
		var at clock.Instant
		select {
		case f.slots <- struct{}{}:
			at = f.clk.Now() // before the source reads its clock
			q.rec, q.now, q.err = read(ctx, f.from, key)
			<-f.slots
		case <-ctx.Done():
			q.err = ctx.Err()
		}
		if q.err != nil {
			q.err = store.Unknown(q.err)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		e.asking = nil
		e.err, e.asked = q.err, f.clk.Now()
		if q.err != nil || q.rec.Token < e.rec.Token {
			return // a lower token: the source has lost records; keep the newer one
		}
		e.rec, e.now, e.at, e.subscription, e.outdated = q.rec, q.now, at, subscription, q.outdated
		e.rec.History = slices.Clone(e.rec.History[max(0, len(e.rec.History)-remembered):])
	})
	return q
}

const (
	// leastPause and mostPause bound the time between two tries to subscribe.
	leastPause = time.Second
	mostPause  = time.Minute
)

// listen listens for operators' acts until the follower closes.
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

// subscribed notes that the source announces acts from now on, or no longer.
func (f *Follower) subscribed(up bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.subscription = 0
	if up {
		f.lastSubscription++
		f.subscription = f.lastSubscription
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
		e.asking.outdated = true
	}
}
