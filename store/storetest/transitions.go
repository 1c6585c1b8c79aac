package storetest

import (
	"slices"
	"strings"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// scene is a key in some state, and the requests that brought it there.
type scene struct {
	key string
	// mine is the request of "ann". Its lease may be over, or it was never
	// sent. other is the request of "bob", and hand that of an operator.
	mine, other, hand tenure.Request
	// records has the key's record after the steps so far.
	records map[string]tenure.Record
	// looks says that the check reads the record after every request. It is set
	// in the first scene of a state. The other scenes are built in the same
	// way.
	looks bool
}

// must sends the next request of the scene. The law must allow it.
func (s *scene) must(t *trial, req tenure.Request) tenure.Record {
	t.Helper()
	var a store.Answer
	if s.looks {
		a = t.stepFrom(s.records, req)
	} else {
		a = t.apply(t.store, req)[0]
		s.records[s.key] = t.judge(s.records[s.key], req, a)
	}
	if a.Err != nil {
		t.Fatalf("%s of %q by %s: %v; the check expected it to succeed", req.Verb, req.Key, req.Owner, a.Err)
	}
	return a.Record
}

// state is built in stages. After each stage the clock passes the latest moment
// that a scene's stage returned.
type state struct {
	name   string
	stages []stage
}

// stage sends requests. If over is set, the next stage begins after the moment
// that send returns.
type stage struct {
	send func(t *trial, s *scene) time.Time
	over bool
}

// waits reports whether time must pass before a key is in the state.
func (s state) waits() bool {
	return slices.ContainsFunc(s.stages, func(g stage) bool { return g.over })
}

// at makes a stage that sends requests and lets no time pass.
func at(send func(s *scene) []tenure.Request) stage {
	return stage{send: func(t *trial, s *scene) time.Time {
		for _, req := range send(s) {
			s.must(t, req)
		}
		return time.Time{}
	}}
}

// over makes a stage that ends when its lease, hold or period is over.
func over(send func(s *scene) []tenure.Request) stage {
	return stage{over: true, send: func(t *trial, s *scene) time.Time {
		var rec tenure.Record
		for _, req := range send(s) {
			rec = s.must(t, req)
		}
		return rec.Quiet()
	}}
}

// states are all situations in which a request can find a key.
func states() []state {
	type list = []tenure.Request
	mine := func(s *scene) list { return list{s.mine} }
	briefMine := func(s *scene) list { return list{briefly(s.mine)} }
	other := func(s *scene) list { return list{s.other} }
	every := func(d time.Duration) func(s *scene) list {
		return func(s *scene) list { s.mine.Every = d; return list{s.mine, release(s.mine)} }
	}
	holdFor := func(d time.Duration) func(s *scene) list {
		return func(s *scene) list { s.mine.HoldFor = d; return list{s.mine, release(s.mine)} }
	}
	type stages = []stage
	return []state{
		{"never held", nil},
		{"held", stages{at(mine)}},
		{"held by another", stages{at(other)}},
		{"expired", stages{over(briefMine)}},
		{"superseded", stages{over(briefMine), at(other)}},
		{"released", stages{at(func(s *scene) list { return list{s.mine, release(s.mine)} })}},
		{"released, then held by another", stages{at(func(s *scene) list {
			return list{s.mine, release(s.mine), s.other}
		})}},
		{"released after failure", stages{at(func(s *scene) list { return list{s.mine, fail(s.mine)} })}},
		{"taken over", stages{at(func(s *scene) list { return list{s.mine, s.hand} })}},
		{"taken over, expired since", stages{over(func(s *scene) list { return list{s.mine, briefly(s.hand)} })}},
		{"reserved", stages{at(func(s *scene) list { s.hand = reserve(s.key, "ann"); return list{s.mine, s.hand} })}},
		{"reserved for another", stages{at(func(s *scene) list {
			s.hand = reserve(s.key, "bob")
			return list{s.mine, s.hand}
		})}},
		{"reservation over", stages{over(func(s *scene) list {
			s.hand = reserve(s.key, "bob")
			return list{s.mine, briefly(s.hand)}
		})}},
		{"revoked", stages{at(func(s *scene) list { s.hand = revoke(s.key); return list{s.mine, s.hand} })}},
		{"on hold", stages{at(holdFor(long))}},
		{"on hold after failure", stages{at(func(s *scene) list {
			s.mine.HoldFor = long
			return list{s.mine, fail(s.mine)}
		})}},
		{"hold over", stages{over(holdFor(brief))}},
		{"done in this period", stages{at(every(long))}},
		{"done in the last period", stages{over(every(brief))}},
	}
}

// act is a name for the requests that somebody sends to a key in some state.
type act struct {
	name string
	send func(s scene) []tenure.Request
}

// acts are all kinds of requests, by senders who may and by senders who may
// not.
func acts() []act {
	type list = []tenure.Request
	with := func(req tenure.Request, change func(*tenure.Request)) tenure.Request { change(&req); return req }
	takeover := func(s scene) tenure.Request { return takeover(s.key) }
	return []act{
		{"acquire", func(s scene) list { return list{acquire(s.key, "ann")} }},
		{"acquire by another", func(s scene) list { return list{acquire(s.key, "bob")} }},
		{"acquire with the same secret", func(s scene) list { return list{s.mine} }},
		{"acquire with the other's secret", func(s scene) list { return list{s.other} }},
		{"acquire with the operator's secret", func(s scene) list {
			return list{with(acquire(s.key, "ann"), func(q *tenure.Request) { q.Secret = s.hand.Secret })}
		}},
		{"acquire for a period", func(s scene) list {
			return list{with(acquire(s.key, "ann"), func(q *tenure.Request) { q.Every = 3 * long })}
		}},
		{"acquire with a hold", func(s scene) list {
			return list{with(acquire(s.key, "ann"), func(q *tenure.Request) { q.HoldFor = long })}
		}},
		{"acquire above a token", func(s scene) list {
			return list{with(acquire(s.key, "ann"), func(q *tenure.Request) { q.Above = tenure.MaxAbove - 7 })}
		}},
		{"renew", func(s scene) list { return list{renew(s.mine)} }},
		{"renew with another TTL", func(s scene) list {
			return list{with(renew(s.mine), func(q *tenure.Request) { q.TTL = 2 * long }), renew(s.mine)}
		}},
		{"renew to resume", func(s scene) list { return list{resume(s.mine)} }},
		{"renew by a stranger", func(s scene) list { return list{stranger(renew(s.mine))} }},
		{"resume by a stranger", func(s scene) list { return list{stranger(resume(s.mine))} }},
		{"renew by the operator", func(s scene) list { return list{renew(s.hand), resume(s.hand)} }},
		{"report", func(s scene) list { return list{report(s.mine, "half")} }},
		{"report to resume", func(s scene) list {
			return list{with(report(s.mine, "half"), func(q *tenure.Request) { q.Resume = true })}
		}},
		{"report by a stranger", func(s scene) list { return list{stranger(report(s.mine, "none"))} }},
		{"checkpoint", func(s scene) list { return list{saves(s.mine, "page 1")} }},
		{"checkpoint to resume", func(s scene) list {
			return list{with(saves(s.mine, "page 1"), func(q *tenure.Request) { q.Resume = true })}
		}},
		{"checkpoint by a stranger", func(s scene) list { return list{stranger(saves(s.mine, "none"))} }},
		{"release", func(s scene) list { return list{release(s.mine), release(s.mine)} }},
		{"release after failure", func(s scene) list { return list{fail(s.mine), fail(s.mine)} }},
		{"release by a stranger", func(s scene) list {
			return list{stranger(release(s.mine)), stranger(fail(s.mine))}
		}},
		{"release by the operator", func(s scene) list { return list{release(s.hand)} }},
		{"takeover", func(s scene) list { req := takeover(s); return list{req, req} }},
		{"takeover with a used secret", func(s scene) list {
			return list{with(takeover(s), func(q *tenure.Request) { q.Secret = s.mine.Secret })}
		}},
		{"takeover by the same operator again", func(s scene) list { return list{s.hand} }},
		{"reserve", func(s scene) list { req := reserve(s.key, "ann"); return list{req, req} }},
		{"reserve for another", func(s scene) list { return list{reserve(s.key, "bob")} }},
		{"revoke", func(s scene) list { req := revoke(s.key); return list{req, req} }},
	}
}

// transitions tries every act in every state.
func transitions() []check {
	var checks []check
	for i, st := range states() {
		checks = append(checks, check{st.name, func(t *trial) { t.everyAct(i, st) }})
	}
	return append(checks,
		check{"law 7: a wrong grant changes nothing", wrongGrant},
		check{"invalid requests touch nothing", invalidRequests},
	)
}

func (t *trial) everyAct(nth int, st state) {
	scenes := make([]scene, 0, len(acts()))
	all := acts()
	for i := range all {
		// A slow store gets a third of all acts in each state, and another
		// third in the next.
		if t.Slow && i%3 != nth%3 {
			continue
		}
		key := "transitions/" + st.name + "/" + all[i].name
		scenes = append(scenes, scene{
			key: key, mine: acquire(key, "ann"), other: acquire(key, "bob"), hand: takeover(key),
			records: map[string]tenure.Record{key: {}}, // the place is empty
			looks:   len(scenes) == 0,
		})
	}
	for _, stage := range st.stages {
		var until time.Time
		for i := range scenes {
			if force := stage.send(t, &scenes[i]); force.After(until) {
				until = force
			}
		}
		if !until.IsZero() {
			t.pass(until)
		}
	}
	next := 0
	for _, a := range all {
		if next >= len(scenes) || scenes[next].key != "transitions/"+st.name+"/"+a.name {
			continue
		}
		s := scenes[next]
		next++
		for _, req := range a.send(s) {
			t.stepFrom(s.records, req)
		}
		// The requests that follow show what the act has left: how the next
		// term begins, and how the last one ended.
		last := acquire(s.key, "cleo")
		t.stepFrom(s.records, last) // a batch of one: some stores treat it specially
		t.stepsFrom(s.records, t.store, takeover(s.key), renew(last))
	}
}

func wrongGrant(t *trial) {
	mine := acquire("laws/7", "ann")
	t.must(mine)
	before := t.get(t.store, mine.Key)
	for _, req := range []tenure.Request{
		renew(mine), resume(mine), report(mine, "x"), saves(mine, "x"), release(mine), fail(mine),
	} {
		a := t.step(stranger(req))
		t.refused(a, tenure.WhyUnknown)
		if d := differ(before, t.get(t.store, mine.Key), wholeHistory); d != "" {
			t.Fatalf("%s with a wrong secret has changed the record: %s", req.Verb, d)
		}
	}
	t.must(renew(mine))
}

func invalidRequests(t *trial) {
	good := acquire("invalid/key", "ann")
	t.must(good)
	before := t.get(t.store, good.Key)
	fresh := acquire(good.Key, "ann")
	with := func(req tenure.Request, change func(*tenure.Request)) tenure.Request { change(&req); return req }
	hand := takeover(good.Key)
	for _, req := range []tenure.Request{
		with(fresh, func(q *tenure.Request) { q.Verb = "seize" }),
		with(fresh, func(q *tenure.Request) { q.Verb = "" }),
		with(fresh, func(q *tenure.Request) { q.Secret = "guess" }),
		with(fresh, func(q *tenure.Request) { q.Secret = "" }),
		with(fresh, func(q *tenure.Request) { q.TTL = 0 }),
		with(fresh, func(q *tenure.Request) { q.TTL = -time.Second }),
		with(fresh, func(q *tenure.Request) { q.TTL = tenure.MaxTTL + 1 }),
		with(fresh, func(q *tenure.Request) { q.Owner = "" }),
		with(fresh, func(q *tenure.Request) { q.Owner = "two\nlines" }),
		with(fresh, func(q *tenure.Request) { q.Above = -1 }),
		with(fresh, func(q *tenure.Request) { q.Above = fence.MaxToken }),
		with(fresh, func(q *tenure.Request) { q.Every = -1 }),
		with(fresh, func(q *tenure.Request) { q.HoldFor = tenure.MaxPeriod + 1 }),
		with(fresh, func(q *tenure.Request) { q.Guards = make([]string, tenure.MaxGuards+1) }),
		with(fresh, func(q *tenure.Request) { q.Guards = []string{""} }),
		with(renew(good), func(q *tenure.Request) { q.TTL = time.Microsecond }),
		with(report(good, "x"), func(q *tenure.Request) { q.Progress = "bell\a" }),
		saves(good, strings.Repeat("x", tenure.MaxCheckpoint+1)),
		with(hand, func(q *tenure.Request) { q.Actor = "" }),
		with(hand, func(q *tenure.Request) { q.Note = " " }),
	} {
		if req.Check() == nil {
			t.Fatalf("the suite's invalid request is valid: %+v", req)
		}
		t.step(req)
	}
	if d := differ(before, t.get(t.store, good.Key), wholeHistory); d != "" {
		t.Fatalf("an invalid request has changed the record: %s", d)
	}
}
