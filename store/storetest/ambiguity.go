package storetest

import (
	"errors"
	"fmt"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

func ambiguity() []check {
	return []check{
		{"law 6: a lost reply resolves to one truth", lostReply},
		{"law 6: a lost request resolves to one truth", lostRequest},
		{"a late acquire resurrects nothing", lateAcquire},
		{"a late acquire that was never resolved can be", lateUnresolved},
		{"late requests of a holder change nothing of the next", lateHolder},
		{"a request delivered twice has the effect of one", deliveredTwice},
		{"law 1: one grant per secret through a bad network", badNetwork},
	}
}

// send sends one request through a network and makes sure that its outcome is
// known, or unknown.
func (t *trial) send(st store.Store, req tenure.Request, known bool) store.Answer {
	t.Helper()
	a := t.apply(st, req)[0]
	if unknown := errors.Is(a.Err, store.ErrUnknown); unknown == known {
		t.Fatalf("%s of %q through the network: %v", req.Verb, req.Key, a.Err)
	}
	return a
}

func lostReply(t *trial) {
	const key = "laws/6/reply"
	mine := acquire(key, "ann")
	net := DropReply(t.store, nil)
	t.send(net, mine, false)
	granted := t.get(t.store, key)
	a := t.must(mine)
	if a.Record.Token != granted.Token || a.Record.Grant != mine.Secret.Grant() || a.Record.Terms != 1 {
		t.Fatalf("asked again after a lost reply: token %d in term %d, granted was %d in term 1",
			a.Record.Token, a.Record.Terms, granted.Token)
	}
	t.send(net, renew(mine), false)
	t.must(renew(mine))
	t.send(net, report(mine, "half"), false)
	if rec := t.get(t.store, key); rec.Progress != "half" {
		t.Fatalf("the report whose reply was lost left %q", rec.Progress)
	}
	t.send(net, saves(mine, "page 1"), false)
	if rec := t.get(t.store, key); rec.Checkpoint != "page 1" {
		t.Fatalf("the checkpoint whose reply was lost left %q", rec.Checkpoint)
	}
	t.send(net, release(mine), false)
	t.must(release(mine))
	for _, hand := range []tenure.Request{takeover(key), reserve(key, "bob"), revoke(key)} {
		t.send(net, hand, false)
		burned := t.get(t.store, key).Token
		if a := t.must(hand); a.Record.Token != burned {
			t.Fatalf("%s again after a lost reply burned a second token: %d, then %d",
				hand.Verb, burned, a.Record.Token)
		}
	}
}

func lostRequest(t *trial) {
	const key = "laws/6/request"
	mine := acquire(key, "ann")
	net := DropRequest(t.store, nil)
	t.send(net, mine, false)
	if rec := t.get(t.store, key); !rec.IsZero() {
		t.Fatalf("a request that was never delivered left %+v", rec)
	}
	granted := t.must(mine)
	t.send(net, release(mine), false)
	if rec := t.get(t.store, key); rec.State != tenure.Held || rec.Token != granted.Record.Token {
		t.Fatalf("a release that was never delivered left the key %s with token %d", rec.State, rec.Token)
	}
	t.must(release(mine))
}

func lateAcquire(t *trial) {
	// Each lease ends in another way before the late copy arrives.
	ends := map[string]func(mine tenure.Request){
		"released": func(mine tenure.Request) { t.must(release(mine)) },
		"failed":   func(mine tenure.Request) { t.must(fail(mine)) },
		"expired":  func(mine tenure.Request) { t.expire(mine.Key) },
		"another": func(mine tenure.Request) {
			t.must(release(mine))
			t.must(acquire(mine.Key, "bob"))
		},
		"taken over": func(mine tenure.Request) { t.must(takeover(mine.Key)) },
		"revoked":    func(mine tenure.Request) { t.must(revoke(mine.Key)) },
	}
	for name, end := range ends {
		mine := acquire("ambiguity/late/"+name, "ann")
		if name == "expired" {
			mine = t.expiring(mine)
		}
		net := DeliverLate(t.store, nil)
		t.send(net, mine, false)
		t.must(mine) // the client asks again, and gets an answer
		end(mine)
		before := t.get(t.store, mine.Key)
		for _, a := range net.Deliver(t.ctx) {
			if !errors.Is(a.Err, tenure.ErrNotOwned) {
				t.Fatalf("a late copy of an acquire that is %s: %v, want not owned", name, a.Err)
			}
		}
		if d := differ(before, t.get(t.store, mine.Key), wholeHistory); d != "" {
			t.Fatalf("a late copy of an acquire that is %s has changed the record: %s", name, d)
		}
	}
}

func lateUnresolved(t *trial) {
	mine := acquire("ambiguity/unresolved", "ann")
	net := DeliverLate(t.store, nil)
	t.send(net, mine, false)
	net.Deliver(t.ctx)
	// Nobody knows of the grant. Its sender asks again, and gives it back.
	t.refused(t.step(acquire(mine.Key, "bob")), tenure.WhyHeld)
	t.must(mine)
	t.must(release(mine))
	t.must(acquire(mine.Key, "bob"))
}

func lateHolder(t *trial) {
	mine, other := t.expiring(acquire("ambiguity/holder", "ann")), acquire("ambiguity/holder", "bob")
	t.must(mine)
	net := DeliverLate(t.store, nil)
	for _, req := range []tenure.Request{
		renew(mine), resume(mine), report(mine, "late"), saves(mine, "late"), release(mine), fail(mine),
	} {
		t.send(net, req, false)
	}
	t.expire(mine.Key)
	t.must(other)
	before := t.get(t.store, mine.Key)
	for i, a := range net.Deliver(t.ctx) {
		if !errors.Is(a.Err, tenure.ErrNotOwned) {
			t.Fatalf("late request %d of a superseded holder: %v, want not owned", i, a.Err)
		}
	}
	if d := differ(before, t.get(t.store, mine.Key), wholeHistory); d != "" {
		t.Fatalf("late requests of a superseded holder have changed the record: %s", d)
	}
}

func deliveredTwice(t *trial) {
	const key = "ambiguity/twice"
	net := DeliverTwice(t.store, nil)
	for range 3 {
		mine := acquire(key, "ann")
		terms := t.get(t.store, key).Terms
		a := t.send(net, mine, true)
		if rec := t.get(t.store, key); a.Err != nil || rec.Terms != terms+1 || rec.Token != a.Record.Token {
			t.Fatalf("one acquire delivered twice: %v, token %d and then %d, terms %d and then %d",
				a.Err, a.Record.Token, rec.Token, terms, rec.Terms)
		}
		for _, req := range []tenure.Request{renew(mine), report(mine, "half"), saves(mine, "half"), release(mine)} {
			if a := t.send(net, req, true); a.Err != nil {
				t.Fatalf("%s delivered twice: %v", req.Verb, a.Err)
			}
		}
		for _, hand := range []tenure.Request{takeover(key), reserve(key, "ann"), revoke(key)} {
			a := t.send(net, hand, true)
			if rec := t.get(t.store, key); a.Err != nil || rec.Token != a.Record.Token {
				t.Fatalf("%s delivered twice: %v, token %d and then %d", hand.Verb, a.Err, a.Record.Token, rec.Token)
			}
		}
	}
}

// badNetwork lets clients work through all faults at once. Requests may be
// lost, doubled or late. Still no secret has two terms, no token has two
// grants, and no client gets the token of another.
func badNetwork(t *trial) {
	const key = "laws/1/network"
	sometimes := func(tenure.Request) bool { return t.rand.IntN(4) == 0 }
	late := DeliverLate(t.store, sometimes)
	net := DeliverTwice(DropRequest(DropReply(late, sometimes), sometimes), sometimes)
	granted := map[fence.Token]fence.Grant{}
	secrets := map[fence.Grant]fence.Token{}
	note := func(rec tenure.Record) {
		for _, term := range rec.History {
			if g, seen := granted[term.Token]; seen && g != term.Grant {
				t.Fatalf("token %d belongs to two grants", term.Token)
			}
			if token, seen := secrets[term.Grant]; seen && token != term.Token {
				t.Fatalf("one secret was granted tokens %d and %d", token, term.Token)
			}
			granted[term.Token], secrets[term.Grant] = term.Grant, term.Token
		}
	}
	for n := range t.many(150, 12, 40) {
		mine := acquire(key, fmt.Sprintf("client %d", n))
		for _, req := range []tenure.Request{mine, renew(mine), release(mine)} {
			a := t.resolve(net, req)
			if t.rand.IntN(3) == 0 {
				late.Deliver(t.ctx)
			}
			note(t.get(t.store, key))
			if a.Err == nil && req.Verb != tenure.Release && a.Record.Grant != mine.Secret.Grant() {
				t.Fatalf("%s succeeded and the record is of another grant", req.Verb)
			}
			if a.Err != nil {
				break // a late copy holds the key, or has ended this lease
			}
		}
		t.resolve(t.store, release(mine)) // whether it was granted or not
	}
	late.Deliver(t.ctx)
	note(t.get(t.store, key))
}
