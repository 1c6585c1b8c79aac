package sim

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"

	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/tenure"
)

// The measures of a world.
const (
	callTimeout = 5 * time.Second          // as a client's by default
	callBound   = 10400 * time.Millisecond // as the engine reckons: two timeouts and a second, by a clock that is fast
	lateBy      = 16 * time.Second         // no message is on its way for longer
	longestStop = 15 * time.Second         // no pause, suspend or outage lasts longer
	longestWait = 8 * time.Second          // no sender is stopped for longer just before it sends
	retention   = 25 * time.Second         // of records: longer than a message is on its way
	stalest     = 2 * time.Second          // no read is older
	stragglers  = 3 * time.Second          // so long after the faults have stopped, messages of before may arrive
	settled     = 6 * time.Second          // and so long after it, what is left is as without faults
)

// epoch is what the store's clock shows when a run begins.
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
	calm   bool          // faults have stopped,
	calmed time.Duration // at this time
	final  bool          // only waiters are left

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
	serial    int            // of secrets
	arrivals  map[string]int // by key, after the faults have stopped
}

// Run carries a case out. With tell it keeps a timeline.
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

// stream is a source of random numbers for one purpose: what happens for other purposes does not change it.
func (w *world) stream(name string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(name))
	return rand.New(rand.NewPCG(w.c.Seed, h.Sum64()))
}

// at puts something on the agenda.
func (w *world) at(when time.Duration, do func()) { w.agenda.push(max(when, w.now), do) }

// run goes through the whole of a run: work under faults, a while without, and what must then come to an end.
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

// until goes through the agenda until a time, a law that is broken, or done.
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

// end lets go of what goroutines wait for.
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

// fail notes a broken law; the first one counts.
func (w *world) fail(l Law, format string, args ...any) {
	if w.broken == nil {
		what := fmt.Sprintf(format, args...)
		w.say("judge", "law %s: %s", l, what) // the last line: what the event still does is of no interest
		w.broken = &Violation{Law: l, At: w.now, What: what}
	}
}

// secret makes the next secret.
func (w *world) secret() tenure.Secret {
	w.serial++
	return tenure.Secret(fmt.Sprintf("%016x%016x", w.c.Seed, w.serial))
}

// upTo is a random duration below d.
func upTo(r *rand.Rand, d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }

// between is a random duration from a to b.
func between(r *rand.Rand, a, b time.Duration) time.Duration { return a + upTo(r, b-a+1) }

// skewed is a duration up to d, mostly short: pauses of any length are of all magnitudes.
func skewed(r *rand.Rand, d time.Duration) time.Duration {
	return max(time.Duration(float64(d)*r.Float64()*r.Float64()*r.Float64()), time.Microsecond)
}

func chance(r *rand.Rand, percent int) bool { return r.IntN(100) < percent }

// instant is a time of a host's clock as the machines take it.
type instant = clock.Instant
