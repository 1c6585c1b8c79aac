package keep

import (
	"container/heap"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// world is a store, a network and some holders, in one thread and from one seed. Its time is the store's; each holder has a clock of its
// own, up to 5 % faster or slower.
type world struct {
	rng    *rand.Rand
	now    time.Duration
	agenda agenda
	seq    int
	rec    tenure.Record
	actors []*actor
	faulty bool                 // messages are lost, late, doubled; holders pause and crash
	tame   bool                 // except that none is doubled and nobody crashes: such grants can only be left to lapse
	known  map[fence.Grant]bool // grants that a holder was told of
	broken []string
}

var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

const (
	key  = "sim/key"
	call = 3 * time.Second // no message is on its way for longer
)

func newWorld(seed uint64, holders int, t Terms) *world {
	w := &world{rng: rand.New(rand.NewPCG(seed, 1)), faulty: true, known: map[fence.Grant]bool{}}
	for i := range holders {
		w.actors = append(w.actors, &actor{
			w: w, name: fmt.Sprint("h", i), terms: t,
			background: map[*Waiter]left{},
			rate:       0.95 + 0.1*w.rng.Float64(), offset: clock.Instant(w.rng.Int64N(int64(time.Hour))),
		})
	}
	return w
}

// at puts something on the agenda.
func (w *world) at(when time.Duration, do func()) {
	w.seq++
	heap.Push(&w.agenda, entry{max(when, w.now), w.seq, do})
}

// run goes through the agenda until a time, and checks the laws after every entry.
func (w *world) run(until time.Duration) {
	for len(w.agenda) > 0 && w.agenda[0].at <= until && len(w.broken) == 0 {
		e := heap.Pop(&w.agenda).(entry)
		w.now = e.at
		e.do()
		w.check()
	}
	w.now = max(w.now, until)
}

// check is law 5: whoever believes to hold the key holds it at the store. It follows that no two do. In a tame world it is law 6 as well:
// a grant that nobody was told of is somebody's task to find out about.
func (w *world) check() {
	if w.tame && w.rec.Alive(w.clock()) && !w.known[w.rec.Grant] && !w.pursued(w.rec.Grant) {
		w.broken = append(w.broken, fmt.Sprintf("at %s the key is held by a grant of %s that nobody was told of or pursues, for another %s", w.now, w.rec.Owner, w.rec.Deadline.Sub(w.clock())))
	}
	for _, a := range w.actors {
		if a.authority() && (w.rec.Grant != a.secret.Grant() || !w.rec.Alive(w.clock())) {
			w.broken = append(w.broken, fmt.Sprintf("at %s %s believes to hold the key until %s from now; the store says %s by %s until %s from now",
				w.now, a.name, a.keeper.Deadline().Sub(a.now()), w.rec.State, w.rec.Owner, w.rec.Deadline.Sub(w.clock())))
		}
	}
}

// pursued reports whether somebody waits for an answer about a grant, or resolves it in the background.
func (w *world) pursued(g fence.Grant) bool {
	for _, a := range w.actors {
		if a.waiter != nil && a.secret.Grant() == g {
			return true
		}
		for _, b := range a.background {
			if b.grant == g {
				return true
			}
		}
	}
	return false
}

func (w *world) clock() time.Time { return epoch.Add(w.now) }

func (w *world) upTo(d time.Duration) time.Duration { return time.Duration(w.rng.Int64N(int64(d))) }

func (w *world) chance(percent int) bool { return w.faulty && w.rng.IntN(100) < percent }

// send carries a request of a holder to the store and the answer back, or not.
func (w *world) send(from *actor, req tenure.Request, answer func(store.Answer)) {
	there := time.Millisecond + w.upTo(10*time.Millisecond)
	back := time.Millisecond + w.upTo(10*time.Millisecond)
	from.mayLoseTouch()
	switch {
	case w.faulty && w.now < from.cutOff, w.chance(10): // the request is lost; sometimes the caller is told that something went wrong
		if w.chance(80) {
			w.at(w.now+there, func() { answer(store.Answer{Err: store.Unknown(errors.New("connection refused"))}) })
		}
		return
	case w.chance(15):
		there += w.upTo(call)
	}
	deliver := func() store.Answer {
		next, _, err := tenure.Apply(w.rec, req, w.clock())
		if err == nil {
			w.rec = next
		}
		return store.Answer{Record: next, Now: w.clock(), Err: err}
	}
	if !w.tame && w.chance(10) {
		w.at(w.now+w.upTo(call), func() { deliver() }) // a second copy
	}
	w.at(w.now+there, func() {
		a := deliver()
		from.mayLoseTouch()
		switch {
		case w.faulty && w.now < from.cutOff, w.chance(10): // the reply is lost; sometimes the caller is told that something went wrong
			if w.chance(80) {
				w.at(w.now+back, func() { answer(store.Answer{Err: store.Unknown(errors.New("connection reset"))}) })
			}
			return
		case w.chance(10):
			back += w.upTo(call)
		}
		w.at(w.now+back, func() { answer(a) })
	})
}

// left is a wait that goes on in the background.
type left struct {
	since time.Duration
	grant fence.Grant
}

// mayLoseTouch cuts the holder off from the store for a while, now and then.
func (a *actor) mayLoseTouch() {
	if a.w.chance(5) {
		a.cutOff = a.w.now + a.w.upTo(2*a.terms.TTL)
	}
}

// actor is one holder: it waits for the key, holds it for a while, and begins again.
type actor struct {
	w      *world
	name   string
	terms  Terms
	rate   float64
	offset clock.Instant

	secret tenure.Secret
	waiter *Waiter
	keeper *Keeper
	paused time.Duration // nothing is noticed before this time
	cutOff time.Duration // nothing gets through to the store and back before this time
	life   int           // how often it has crashed

	careless   bool // leaves unknown outcomes alone: a fault of its own
	granted    int
	resolved   int
	background map[*Waiter]left // waits that are being resolved
}

func (a *actor) now() clock.Instant { return a.offset + clock.Instant(float64(a.w.now)*a.rate) }

// when is the time of the world at an instant of the holder's.
func (a *actor) when(i clock.Instant) time.Duration {
	if i == Never {
		return 1 << 62
	}
	return time.Duration(float64(i-a.offset)/a.rate) + 1
}

// authority is what the holder believes by its own clock alone: also while it is paused, also when it is about to find out.
func (a *actor) authority() bool {
	return a.keeper != nil && a.keeper.Lost() == "" && a.now() < a.keeper.Deadline()
}

// soon does something at a time, or when a pause is over, unless the holder has crashed by then.
func (a *actor) soon(when time.Duration, do func()) {
	life := a.life
	a.w.at(when, func() {
		switch {
		case a.life != life:
		case a.w.now < a.paused:
			a.soon(a.paused, do)
		default:
			do()
		}
	})
}

// reply is soon, for answers that the network brings.
func (a *actor) reply(take func(store.Answer)) func(store.Answer) {
	life := a.life
	return func(ans store.Answer) {
		if a.life == life {
			a.soon(a.w.now, func() { take(ans) })
		}
	}
}

// wait begins to wait for the key.
func (a *actor) wait(patience time.Duration) {
	a.secret = secretOf(a.w.rng)
	wt := NewWaiter(Patience{For: patience, Resolve: time.Second, Call: call * 11 / 10, Terms: a.terms}, a.now(), a.w.rng.Float64)
	a.waiter = wt
	a.stepWaiter(wt, a.secret, Tick{})
	if a.w.chance(20) { // the caller loses its patience
		a.soon(a.w.now+a.w.upTo(2*a.terms.TTL), func() {
			if a.waiter == wt {
				a.stepWaiter(wt, a.secret, Abandoned{Err: errors.New("gone")})
			}
		})
	}
}

func (a *actor) stepWaiter(wt *Waiter, secret tenure.Secret, e Event) {
	mine := a.waiter == wt
	wishes := wt.Step(e, a.now())
	if wishes.Fresh {
		secret = secretOf(a.w.rng)
		if mine {
			a.secret = secret
		}
	}
	switch {
	case wishes.Ask:
		a.ask(wt, secret, wishes.Attempt, tenure.Acquire)
	case wishes.Release:
		a.ask(wt, secret, wishes.Attempt, tenure.Release)
	}
	if mine && (wishes.Granted || wishes.Refused || wishes.Unknown || wishes.Background || wishes.Done) {
		a.waiter = nil
		if wishes.Background {
			a.leave(wt, secret)
		}
		if wishes.Granted {
			a.hold(e.(Answered).Answer, wishes.Deadline)
		} else {
			a.later(a.w.upTo(a.terms.TTL))
		}
	} else if wishes.Done {
		delete(a.background, wt)
		a.resolved++
	}
	if wt.phase == asking || wt.phase == resolving && !a.careless {
		a.soon(a.when(wt.Wake()), func() { a.tickWaiter(wt, secret) })
	}
}

func (a *actor) leave(wt *Waiter, secret tenure.Secret) {
	if !a.careless {
		a.background[wt] = left{a.w.now, secret.Grant()}
	}
}

// tickWaiter steps a machine if its time has come: an older wake-up may have been overtaken by events.
func (a *actor) tickWaiter(wt *Waiter, secret tenure.Secret) {
	if a.now() >= wt.Wake() {
		if a.waiter == wt {
			secret = a.secret
		}
		a.stepWaiter(wt, secret, Tick{})
	}
}

func (a *actor) ask(wt *Waiter, secret tenure.Secret, attempt int, verb tenure.Verb) {
	req := tenure.Request{Verb: verb, Key: key, Secret: secret, Owner: a.name, TTL: a.terms.TTL, Failed: true}
	sent := a.now()
	a.w.send(a, req, a.reply(func(ans store.Answer) {
		a.stepWaiter(wt, secret, Answered{Attempt: attempt, Sent: sent, Answer: ans})
	}))
}

// hold begins to keep what was granted.
func (a *actor) hold(ans store.Answer, deadline clock.Instant) {
	a.granted++
	a.w.known[a.secret.Grant()] = true
	k := NewKeeper(a.terms, deadline, a.now(), a.now(), ans.Record, a.w.rng.Float64())
	a.keeper = &k
	a.stepKeeper(&k, Tick{})
	switch {
	case !a.w.tame && a.w.chance(10):
		a.crash() // it neither renews nor releases, and comes back as another
		a.soon(a.w.now+a.w.upTo(3*a.terms.TTL), func() { a.wait(time.Hour) })
		return
	case !a.w.tame && a.w.chance(20):
		a.paused = a.w.now + a.w.upTo(2*a.terms.TTL)
	}
	a.soon(a.w.now+a.w.upTo(2*a.terms.TTL), func() { a.release(&k) })
}

// crash ends all the holder does, what it resolves in the background included.
func (a *actor) crash() {
	a.life++
	a.waiter, a.keeper = nil, nil
	clear(a.background)
}

func (a *actor) stepKeeper(k *Keeper, e Event) {
	orders := k.Step(e, a.now())
	if orders.Renew {
		sent, secret := a.now(), a.secret
		a.w.send(a, tenure.Request{Verb: tenure.Renew, Key: key, Secret: secret}, a.reply(func(ans store.Answer) {
			a.stepKeeper(k, Answered{Sent: sent, Answer: ans})
		}))
	}
	if orders.Lost != "" && a.keeper == k {
		a.keeper = nil
		a.later(a.w.upTo(a.terms.TTL))
	}
	if k.Lost() == "" {
		a.w.at(a.when(k.Deadline())-100, func() {}) // look at the last moment of belief
		a.soon(a.when(k.Wake()), func() {
			if a.now() >= k.Wake() {
				a.stepKeeper(k, Tick{Jitter: a.w.rng.Float64()})
			}
		})
	}
}

func (a *actor) release(k *Keeper) {
	if a.keeper != k || k.Lost() != "" {
		return
	}
	secret := a.secret
	a.stepKeeper(k, Ended{Released})
	a.w.send(a, tenure.Request{Verb: tenure.Release, Key: key, Secret: secret}, func(store.Answer) {})
}

// later waits for the key again.
func (a *actor) later(d time.Duration) {
	patience := time.Hour
	if a.w.chance(30) {
		patience = a.w.upTo(a.terms.TTL)
	}
	a.soon(a.w.now+d, func() {
		if a.waiter == nil && a.keeper == nil {
			a.wait(patience)
		}
	})
}

func secretOf(rng *rand.Rand) tenure.Secret {
	return tenure.Secret(fmt.Sprintf("%016x%016x", rng.Uint64(), rng.Uint64()))
}

// entry is one thing on the agenda; entries of one time come in the order in which they were put there.
type entry struct {
	at  time.Duration
	seq int
	do  func()
}

type agenda []entry

func (g agenda) Len() int { return len(g) }
func (g agenda) Less(i, j int) bool {
	return g[i].at < g[j].at || g[i].at == g[j].at && g[i].seq < g[j].seq
}
func (g agenda) Swap(i, j int) { g[i], g[j] = g[j], g[i] }
func (g *agenda) Push(x any)   { *g = append(*g, x.(entry)) }
func (g *agenda) Pop() any {
	e := (*g)[len(*g)-1]
	*g = (*g)[:len(*g)-1]
	return e
}
