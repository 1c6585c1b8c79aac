package sim

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"

	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/tenure"
)

// The limits and durations of a world.
const (
	callTimeout = 5 * time.Second // the default of a client
	// callBound is when the engine takes a call for lost: two timeouts and a
	// second, by a clock that is fast.
	callBound   = 10400 * time.Millisecond
	lateBy      = 16 * time.Second // no message takes longer
	longestStop = 15 * time.Second // no pause, suspend or outage lasts longer
	longestWait = 8 * time.Second  // no pause just before sending lasts longer
	retention   = 25 * time.Second // of records: longer than a message may take
	stalest     = 2 * time.Second  // no read is older
	// stragglers is how long older messages may still arrive after the faults
	// have stopped.
	stragglers = 3 * time.Second
	// settled is how long after the faults the effects of faults are over.
	settled = 6 * time.Second
)

// epoch is the time on the store's clock when a run begins.
var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// world is one run.
type world struct {
	c       Case
	profile *Profile
	mutant  *Mutant

	now    time.Duration
	agenda agenda
	events int
	ops    int
	calm   bool          // the faults have stopped
	calmed time.Duration // when they stopped
	final  bool          // holders leave, and only waiters stay

	luck     [faults]*rand.Rand
	chances  [faults]int
	fired    []Firing
	coverage Coverage
	telling  bool
	timeline []string
	broken   *Violation

	judge     *judge
	store     server
	clients   []*client
	operator  *client
	keys      []string
	resources []*resource
	serial    int            // counts secrets
	arrivals  map[string]int // grants after the faults have stopped, by key
}

// Run runs a case. With tell it keeps a timeline.
func Run(c Case, tell bool) *Result {
	w := newWorld(c.withDefaults(), tell)
	defer w.end()
	w.run()
	return &Result{
		Case: w.c, Ops: w.ops, Lasted: w.now, Broken: w.broken, Fired: w.fired,
		Coverage: w.coverage, Timeline: w.timeline, Events: w.events,
	}
}

func newWorld(c Case, tell bool) *world {
	w := &world{c: c, coverage: Coverage{}, telling: tell}
	w.profile = profileOf(c.Profile)
	w.mutant = mutantOf(c.Mutant)
	for f := range faults {
		w.luck[f] = w.stream(faultNames[f])
	}
	w.judge = newJudge(w)
	layout := w.stream("layout")
	for i := range c.Keys {
		key := fmt.Sprintf("sim/k%d", i)
		w.keys = append(w.keys, key)
		for j := range 2 {
			w.resources = append(w.resources, &resource{
				w: w, key: key, name: fmt.Sprintf("r%d%c", i, 'a'+j),
				kind: guardKind(layout.IntN(int(guardKinds))),
			})
		}
	}
	w.store = w.profile.store(w)
	for i := range c.Clients {
		w.clients = append(w.clients, &client{host: newHost(w, fmt.Sprintf("c%d", i))})
	}
	w.operator = &client{host: newHost(w, "op")}
	return w
}

// stream returns random numbers for one purpose. Other purposes do not change
// them.
func (w *world) stream(name string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(name))
	return rand.New(rand.NewPCG(w.c.Seed, h.Sum64()))
}

// at puts an event on the agenda.
func (w *world) at(when time.Duration, do func()) { w.agenda.push(max(when, w.now), do) }

// run goes through a whole run: work under faults, a while without faults, and
// then the end, where every waiter must get its key.
func (w *world) run() {
	for _, c := range append(w.clients, w.operator) {
		c.start()
	}
	w.nemesis()
	w.until(w.c.Limit, func() bool { return w.ops >= w.c.Ops })
	if w.broken != nil || w.now >= w.c.Limit {
		return
	}
	w.makeCalm()
	w.until(w.now+settled, nil)
	if w.broken == nil {
		w.conclude()
	}
}

// until runs events until a time, until a law is broken, or until done returns
// true.
func (w *world) until(limit time.Duration, done func() bool) {
	for len(w.agenda.entries) > 0 && w.agenda.entries[0].at <= limit && w.broken == nil && (done == nil || !done()) {
		e := w.agenda.pop()
		w.now = e.at
		w.events++
		e.do()
	}
	if w.broken == nil && (done == nil || !done()) {
		w.now = max(w.now, limit)
	}
}

// end ends the coroutines that are left.
func (w *world) end() {
	for _, c := range append(w.clients, w.operator) {
		c.drop()
	}
}

// say adds a line to the timeline.
func (w *world) say(who, format string, args ...any) {
	if w.telling && w.broken == nil {
		w.timeline = append(w.timeline, fmt.Sprintf("%s  %-5s %s", clockFace(w.now), who, fmt.Sprintf(format, args...)))
	}
}

// fail records a broken law. Only the first one counts.
func (w *world) fail(l Law, format string, args ...any) {
	if w.broken == nil {
		what := fmt.Sprintf(format, args...)
		w.say("judge", "law %s: %s", l, what) // the last line: the rest of the event does not matter
		w.broken = &Violation{Law: l, At: w.now, What: what}
	}
}

// secret makes the next secret.
func (w *world) secret() tenure.Secret {
	w.serial++
	return tenure.Secret(fmt.Sprintf("%016x%016x", w.c.Seed, w.serial))
}

// upTo returns a random duration below d.
func upTo(r *rand.Rand, d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }

// between returns a random duration from a to b.
func between(r *rand.Rand, a, b time.Duration) time.Duration { return a + upTo(r, b-a+1) }

// skewed returns a random duration up to d, mostly a short one, so that all
// magnitudes occur.
func skewed(r *rand.Rand, d time.Duration) time.Duration {
	return max(time.Duration(float64(d)*r.Float64()*r.Float64()*r.Float64()), time.Microsecond)
}

func chance(r *rand.Rand, percent int) bool { return r.IntN(100) < percent }

// instant is a time on a host's clock, as the engine takes it.
type instant = clock.Instant
