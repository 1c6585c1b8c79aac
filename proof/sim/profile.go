package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Profile is a kind of world: a store and its faults. They decide which laws
// can hold.
type Profile struct {
	Name string
	Says string
	// Steps says that the store's clock is set forward and back. Laws 4, 5 and
	// 9 then promise nothing.
	Steps bool
	// Skew is how far the store's clock may be behind after a loss of memory.
	// New tokens may be below those that it issued within that time.
	Skew time.Duration
	// Keys is the number of keys, used evenly, unless the case has one. 0 means
	// 3 keys: one is popular, one is rare.
	Keys int
	// Blind is the percentage of jobs that write to resources they have not
	// named; 0 means 20. Zombies is the percentage that goes on writing after
	// the lease has ended; 0 means 30.
	Blind, Zombies int
	// Chances are the probabilities of the faults of messages.
	Chances [faults]float64
	// Weights are the relative weights of the faults of the world.
	Weights [faults]int

	store   func(*world) server
	lacks   []Sight // common sights that cannot occur here
	further []Sight // sights that can occur only here
}

// The usual rates.
var (
	network = map[Fault]float64{
		LostRequest: 0.04, LostReply: 0.05, SlowRequest: 0.04, SlowReply: 0.04, LateRequest: 0.03,
		Doubled: 0.03, LostHint: 0.2,
	}
	hosts  = map[Fault]int{Crash: 3, Shutdown: 2, Pause: 4, Suspend: 3, CutOff: 2, ClientRate: 2}
	people = map[Fault]int{Operator: 3, Forgery: 2, ByDeed: 2}
	steps  = map[Fault]float64{PausedSend: 0.01, PausedStep: 0.03, GuardCrash: 0.015}
)

func (p *Profile) with(chances ...map[Fault]float64) *Profile {
	for _, m := range chances {
		for f, rate := range m {
			p.Chances[f] = rate
		}
	}
	return p
}

func (p *Profile) nemesis(weights ...map[Fault]int) *Profile {
	for _, m := range weights {
		for f, n := range m {
			p.Weights[f] = n
		}
	}
	return p
}

// draw returns the next fault of the world, or -1.
func (p *Profile) draw(r *rand.Rand) Fault {
	total := 0
	for _, n := range p.Weights {
		total += n
	}
	if total == 0 {
		return -1
	}
	at := r.IntN(total)
	for f, n := range p.Weights {
		if at -= n; at < 0 {
			return Fault(f)
		}
	}
	return -1
}

// Profiles are all kinds of worlds.
var Profiles = []*Profile{
	(&Profile{
		Name: "network", Says: "a directory or another plain register; messages are lost, late, doubled and stale",
		store: func(w *world) server { return newCASServer(w, false) },
		lacks: []Sight{{"fence", "busy"}}, // no process stops inside a guard
	}).with(network, map[Fault]float64{StaleRead: 0.1}).nemesis(people, map[Fault]int{
		CutOff: 3, Shutdown: 2, Restart: 1, Sweep: 5,
	}),
	(&Profile{
		Name:  "sweeps",
		Says:  "the same with many keys that are seldom used: old records are swept while somebody takes them up again",
		Keys:  12,
		store: func(w *world) server { return newCASServer(w, false) },
	}).with(network, map[Fault]float64{PausedStep: 0.1}).nemesis(people, map[Fault]int{Sweep: 20, Pause: 2}),
	(&Profile{
		Name:  "hosts",
		Says:  "the same; processes die, stop and sleep, between any two steps, and their clocks change their rates",
		store: func(w *world) server { return newCASServer(w, false) },
	}).with(steps, map[Fault]float64{
		LostReply: 0.01, LateRequest: 0.01, Doubled: 0.01,
	}).nemesis(hosts, people, map[Fault]int{Sweep: 6}),
	(&Profile{
		Name: "redis", Says: "one script at a time; replicas that lag take over",
		store:   func(w *world) server { return newRedisServer(w) },
		further: []Sight{{"engine", "others wait"}},
	}).with(network, steps, map[Fault]float64{StaleRead: 0.1}).
		nemesis(hosts, people, map[Fault]int{Restart: 1, Failover: 3}),
	(&Profile{
		Name:  "postgres",
		Says:  "row locks, batches that skip locked rows, commits that take long, rolled back transactions",
		store: func(w *world) server { return newPostgresServer(w) },
	}).with(network, steps, map[Fault]float64{
		SlowCommit: 0.04, Aborted: 0.02,
	}).nemesis(hosts, people, map[Fault]int{Restart: 1, RowLocked: 3}),
	(&Profile{
		Name: "etcd",
		Says: "one step at a time; the first who waits for a released key is told, perhaps late or never, " +
			"and the others a moment later",
		store:   func(w *world) server { return newEtcdServer(w) },
		further: []Sight{{"engine", "others wait"}},
	}).with(network, steps, map[Fault]float64{LateHint: 0.3}).nemesis(hosts, people, map[Fault]int{Restart: 1}),
	(&Profile{
		Name: "restored", Says: "the same; it is put back to older states, and wiped",
		store: func(w *world) server { return newEtcdServer(w) },
	}).with(network, steps, map[Fault]float64{LateHint: 0.3}).nemesis(hosts, people, map[Fault]int{
		Restart: 1, Rewind: 4, Wipe: 1,
	}),
	(&Profile{
		Name: "served",
		Says: "two of croft's servers before such a store: requests of many clients go to it in one call, and " +
			"servers die with what they carry",
		store:   func(w *world) server { return newServedStore(w) },
		further: []Sight{{"server", "calls of clients together"}},
	}).with(network, steps, map[Fault]float64{LateHint: 0.3, SlowCommit: 0.04, ServerKilled: 0.03}).
		nemesis(hosts, people, map[Fault]int{Restart: 1}),
	(&Profile{
		Name: "s3", Says: "conditional puts, 409, 412 and 429, a clock of whole seconds, no hints",
		Skew:  3 * time.Second,
		store: func(w *world) server { return newCASServer(w, true) },
	}).with(network, steps, map[Fault]float64{
		Conflict: 0.05, Throttled: 0.04, LostHint: 0,
	}).nemesis(hosts, people, map[Fault]int{Restart: 1}),
	(&Profile{
		Name: "memory", Says: "a plain register that is put back to older states, wiped and restarted",
		store: func(w *world) server { return newCASServer(w, false) },
	}).with(network, steps).nemesis(hosts, people, map[Fault]int{Restart: 1, Rewind: 4, Wipe: 2, Sweep: 6}),
	(&Profile{
		Name:    "amnesia",
		Says:    "an object store that forgets within the second its clock shows: tokens collide",
		Skew:    3 * time.Second,
		store:   func(w *world) server { return newCASServer(w, true) },
		further: []Sight{{"fence", "collision"}},
		lacks:   []Sight{{"transition", "dropped"}}, // the store forgets before retention ends
	}).with(network, steps, map[Fault]float64{
		Conflict: 0.02, Throttled: 0.02, LostHint: 0,
	}).nemesis(people, map[Fault]int{Rewind: 5, Wipe: 3, Pause: 2, Crash: 1}),
	(&Profile{
		Name: "guards",
		Says: "writers that do not stop in time, do not name what they write to, and die or are stopped " +
			"between the steps of a guard",
		Blind: 60, Zombies: 80,
		store: func(w *world) server { return newRedisServer(w) },
	}).with(network, map[Fault]float64{
		PausedSend: 0.02, PausedStep: 0.05, GuardCrash: 0.05,
	}).nemesis(people, map[Fault]int{Pause: 4, Suspend: 2, CutOff: 4, Crash: 1}),
	(&Profile{
		Name: "clocks",
		Says: "one script at a time; the store's clock is set by up to an hour and changes its rate, and " +
			"replicas take over",
		Steps: true,
		store: func(w *world) server { return newRedisServer(w) },
	}).with(network, steps).nemesis(hosts, people, map[Fault]int{StoreStep: 6, StoreRate: 3, Failover: 2, Wipe: 1}),
	(&Profile{
		Name: "storm", Says: "everything at once, on an object store", Steps: true, Skew: 3 * time.Second,
		store: func(w *world) server { return newCASServer(w, true) },
	}).with(network, steps, map[Fault]float64{Conflict: 0.05, Throttled: 0.04, StaleRead: 0.03, LostHint: 0}).
		nemesis(hosts, people, map[Fault]int{StoreStep: 2, StoreRate: 2, Restart: 2, Rewind: 2, Wipe: 1}),
}

// ProfileNames returns the names of all profiles.
func ProfileNames() []string {
	names := make([]string, len(Profiles))
	for i, p := range Profiles {
		names[i] = p.Name
	}
	return names
}

// FindProfile returns the profile of that name.
func FindProfile(name string) (*Profile, error) {
	for _, p := range Profiles {
		if p.Name == name {
			return p, nil
		}
	}
	return nil, fmt.Errorf("there is no profile %q; there are %s", name, strings.Join(ProfileNames(), ", "))
}

func profileOf(name string) *Profile {
	p, err := FindProfile(name)
	if err != nil {
		panic(err)
	}
	return p
}

// sights returns sights of one kind.
func sights(kind string, names ...string) (all []Sight) {
	for _, name := range names {
		all = append(all, Sight{kind, name})
	}
	return all
}

// everywhere are the sights that every profile must show.
var everywhere = slices.Concat(
	sights("transition", "acquire first", "acquire released", "acquire expired", "acquire handoff",
		"acquire cancelled", "acquire again", "renew", "renew to resume", "report", "checkpoint", "release",
		"release after failure",
		"takeover", "reserve", "revoke", "dropped"),
	sights("refusal", "held: held", "held: reserved", "held: hold", "held: period", "not owned: released",
		"not owned: expired", "not owned: superseded", "not owned: taken_over", "not owned: unknown", "unknown"),
	sights("fence", "raised", "written", "stale", "repeated", "wrong key", "busy", "unknown", "overtaken"),
	sights("loss", "superseded", "expired", "taken_over", "released", "unreachable", "stalled", "held_too_long"),
	sights("resolution", "released", "never", "left"),
	sights("lease", "resumed"),
	sights("engine", "several in a batch", "passed on", "overtook a batch", "single try"),
	sights("abandoned", "acquire", "release", "report"),
	sights("by deed", "renew", "report", "release"),
)

// Expected returns the sights that many seeds must show: each fault of the
// profile, and each transition and refusal that is possible in it.
func (p *Profile) Expected() []Sight {
	var all []Sight
	for f := range faults {
		if p.Chances[f] > 0 || p.Weights[f] > 0 {
			all = append(all, Sight{"fault", f.String()})
		}
	}
	if p.Chances[Conflict] > 0 {
		all = append(all, Sight{"answer", "412"})
	}
	if p.Weights[RowLocked] > 0 {
		all = append(all, Sight{"store", "skipped a locked row"}, Sight{"store", "waited for a row"})
	}
	if p.Weights[Shutdown] > 0 {
		all = append(all, sights("engine", "closed with nothing left", "closed with something left")...)
	}
	if p.Steps || p.Weights[Wipe] > 0 {
		all = append(all, Sight{"transition", "acquire recovery"})
	}
	all = append(all, everywhere...)
	all = append(all, p.further...)
	return slices.DeleteFunc(all, func(s Sight) bool { return slices.Contains(p.lacks, s) })
}
