package history

import (
	"strings"
	"testing"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// scene is a history made by hand. A TTL is 1000 units of time. The store's
// clock and the boot clock show the same.
type scene struct {
	ops []Op
}

const ttl = 1000

func (s *scene) add(process string, begin, end int64, c Call, out Result) *scene {
	c.Key = "k"
	if c.Kind == Fault || c.Kind == Rewind {
		c.Key = ""
	}
	s.ops = append(s.ops, Op{Process: process, Number: int64(len(s.ops) + 1), Call: c, Result: out, Begin: begin, End: end})
	return s
}

func id(name string) fence.Grant { return fence.Grant(strings.Repeat(name, 32)[:32]) }

// record is a store's answer at the time now: grant g has held the token since
// then.
func record(outcome Outcome, g string, token, since, deadline, now int64) Result {
	return Result{Outcome: outcome, Token: fence.Token(token), Grant: id(g), State: tenure.Held, Acquired: since, Deadline: deadline, Now: now}
}

func gone(g string, token, since, now int64) Result {
	r := record(OK, g, token, since, now, now)
	r.State = tenure.Free
	return r
}

func ask(verb tenure.Verb, g string) Call { return Call{Kind: Lease, Verb: verb, Grant: id(g)} }

// acquires adds: grant g asks, and gets an answer.
func (s *scene) acquires(process, g string, begin, end int64, out Result) *scene {
	return s.add(process, begin, end, ask(tenure.Acquire, g), out)
}

// takes adds: grant g gets a token, and its process learns of it at once.
func (s *scene) takes(process, g string, at, token int64) *scene {
	return s.acquires(process, g, at-1, at+1, record(OK, g, token, at, at+ttl, at))
}

func (s *scene) renews(process, g string, begin, end int64, out Result) *scene {
	return s.add(process, begin, end, ask(tenure.Renew, g), out)
}

func (s *scene) releases(process, g string, begin, end int64, out Result) *scene {
	return s.add(process, begin, end, ask(tenure.Release, g), out)
}

// acts adds an operator's act, with a grant of its own, and its confirmation.
// owner is the owner that a reservation is for.
func (s *scene) acts(verb tenure.Verb, g, owner string, at, token int64) *scene {
	return s.add("operator", at-1, at+1, byHandCall(verb, g, owner), made(verb, g, owner, token, at, at))
}

func byHandCall(verb tenure.Verb, g, owner string) Call {
	c := ask(verb, g)
	c.Owner = owner
	return c
}

// made is the store's answer to an operator. The operator acted at one time,
// and asks, perhaps for the second time, at another.
func made(verb tenure.Verb, g, owner string, token, at, now int64) Result {
	r := record(OK, g, token, at, at+ttl, now)
	r.Owner = owner
	switch verb {
	case tenure.Revoke:
		r.State, r.Deadline = tenure.Free, at
	case tenure.Reserve:
		r.State = tenure.Reserved
	}
	return r
}

func (s *scene) holds(process, g string, at, token int64) *scene {
	return s.add(process, at, at, Call{Kind: Holds, Grant: id(g), Token: fence.Token(token)}, Result{Outcome: OK})
}

func (s *scene) writes(process, g string, begin, end, token, seq int64, update, prior string, outcome Outcome) *scene {
	return s.add(process, begin, end, Call{Kind: Write, Grant: id(g), Token: fence.Token(token), Seq: uint64(seq), Update: update, Prior: prior}, Result{Outcome: outcome})
}

func (s *scene) raises(process, g string, begin, end, token int64) *scene {
	return s.add(process, begin, end, Call{Kind: Raise, Grant: id(g), Token: fence.Token(token)}, Result{Outcome: OK})
}

func (s *scene) reads(process string, at int64, holds string) *scene {
	return s.add(process, at-1, at+1, Call{Kind: Read}, Result{Outcome: OK, Update: holds})
}

func (s *scene) rewinds(begin, end int64) *scene {
	return s.add("run", begin, end, Call{Kind: Rewind}, Result{Outcome: OK})
}

var unknown = Result{Outcome: Unknown}

// laws returns the broken laws, each once.
func laws(found []Violation) map[Law]bool {
	broken := map[Law]bool{}
	for _, v := range found {
		broken[v.Law] = true
	}
	return broken
}

// expect checks that a history breaks exactly these laws.
func expect(t *testing.T, ops []Op, scope Scope, want ...Law) {
	t.Helper()
	found := Check(ops, scope)
	broken := laws(found)
	for _, law := range want {
		if !broken[law] {
			t.Errorf("not found: %s; found %v", law, found)
		}
		delete(broken, law)
	}
	for law := range broken {
		t.Errorf("found without reason: %s in %v", law, found)
	}
}
