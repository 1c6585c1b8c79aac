package storetest

import (
	"strings"

	"github.com/croft-dev/croft/tenure"
)

func checkpoints() []check {
	return []check{
		{"a checkpoint outlives its term, however that ends", checkpointOutlives},
		{"a checkpoint holds any bytes, up to the limit", checkpointOfAnyBytes},
		{"the last checkpoint counts", lastCheckpoint},
		{"a new key has no checkpoint", newKey},
		{"a former holder's checkpoint changes nothing", formerCheckpoint},
		{"a checkpoint goes with its record", checkpointGoes},
	}
}

// saves makes a request for a checkpoint. of is the request that was granted.
func saves(of tenure.Request, state string) tenure.Request {
	return tenure.Request{Verb: tenure.Checkpoint, Key: of.Key, Secret: of.Secret, Checkpoint: state}
}

// savesLate is saves for a lease that may have expired. Nobody else has the
// key.
func savesLate(of tenure.Request, state string) tenure.Request {
	req := saves(of, state)
	req.Resume = true
	return req
}

// saved makes sure that the record of a key has a checkpoint, in whatever way
// it is read.
func (t *trial) saved(key, state, when string) {
	t.Helper()
	if got := t.get(t.store, key).Checkpoint; got != state {
		t.Fatalf("%s the record of %q has the checkpoint %.40q, want %.40q", when, key, got, state)
	}
	for _, rec := range t.list(t.store, key) {
		if rec.Checkpoint != state {
			t.Fatalf("%s the list has %q with the checkpoint %.40q, want %.40q", when, key, rec.Checkpoint, state)
		}
	}
}

func checkpointOutlives(t *trial) {
	ends := map[string]func(mine tenure.Request){
		"released":   func(mine tenure.Request) { t.must(release(mine)) },
		"failed":     func(mine tenure.Request) { t.must(fail(mine)) },
		"expired":    func(mine tenure.Request) { t.expire(mine.Key) },
		"revoked":    func(mine tenure.Request) { t.must(revoke(mine.Key)) },
		"handed on":  func(mine tenure.Request) { t.must(reserve(mine.Key, "bob")) },
		"taken over": func(mine tenure.Request) { hand := takeover(mine.Key); t.must(hand); t.must(release(hand)) },
	}
	for name, end := range ends {
		mine := acquire("checkpoints/"+name, "ann")
		if name == "expired" {
			mine = t.expiring(mine)
		}
		t.must(mine)
		t.must(savesLate(mine, "page 17"))
		end(mine)
		t.saved(mine.Key, "page 17", "after ann's term was "+name)
		next := acquire(mine.Key, "bob")
		if a := t.must(next); a.Record.Checkpoint != "page 17" {
			t.Fatalf("ann's term was %s, and bob's grant has the checkpoint %q", name, a.Record.Checkpoint)
		}
		// Bob saves nothing, so ann's checkpoint stays.
		t.must(report(next, "reading"))
		t.must(release(next))
		if a := t.must(acquire(mine.Key, "cleo")); a.Record.Checkpoint != "page 17" {
			t.Fatalf("bob saved nothing, and cleo's grant has the checkpoint %q", a.Record.Checkpoint)
		}
	}
}

func checkpointOfAnyBytes(t *trial) {
	mine := acquire("checkpoints/bytes", "ann")
	t.must(mine)
	var all strings.Builder
	for b := range 256 {
		all.WriteByte(byte(b))
	}
	for _, state := range []string{
		"x", all.String(), "\x00", "\x1f\x1f", "\xff\xfe", "two\nlines\t", `{"page": "\u0000"}`, "café",
		strings.Repeat(all.String(), tenure.MaxCheckpoint/256), "",
	} {
		if a := t.must(saves(mine, state)); a.Record.Checkpoint != state {
			t.Fatalf("saved %.40q, and the answer has %.40q", state, a.Record.Checkpoint)
		}
		t.saved(mine.Key, state, "after a checkpoint")
	}
	t.must(saves(mine, "before"))
	t.step(saves(mine, strings.Repeat("x", tenure.MaxCheckpoint+1))) // refused
	t.saved(mine.Key, "before", "after a checkpoint that is too large")
}

func lastCheckpoint(t *trial) {
	mine := acquire("checkpoints/last", "ann")
	t.must(mine)
	t.must(report(mine, "half"))
	t.must(saves(mine, "page 1"))
	t.must(renew(mine))
	a := t.must(saves(mine, "page 2"))
	if a.Record.Progress != "half" {
		t.Fatalf("a checkpoint changed the report to %q", a.Record.Progress)
	}
	// All of a batch count, in their order.
	t.steps(t.store, saves(mine, "page 3"), report(mine, "more"), saves(mine, "page 4"), release(mine))
	t.saved(mine.Key, "page 4", "after a batch")
}

// newKey: records that are decided in one batch share nothing.
func newKey(t *trial) {
	mine := acquire("checkpoints/new/1", "ann")
	t.must(mine)
	t.must(saves(mine, "page 17"))
	t.must(release(mine))
	t.steps(t.store, acquire(mine.Key, "bob"), acquire("checkpoints/new/2", "bob"), takeover("checkpoints/new/3"))
	t.saved("checkpoints/new/2", "", "beside a grant with a checkpoint")
	t.saved("checkpoints/new/3", "", "beside a grant with a checkpoint")
}

func formerCheckpoint(t *trial) {
	mine, next := t.expiring(acquire("checkpoints/former", "ann")), acquire("checkpoints/former", "bob")
	t.must(mine)
	t.must(savesLate(mine, "ann's"))
	net := DeliverLate(t.store, nil)
	t.send(net, savesLate(mine, "ann's, late"), false)
	t.expire(mine.Key)
	t.must(next)
	t.must(saves(next, "bob's"))
	net.Deliver(t.ctx)
	t.refused(t.step(saves(mine, "ann's, later")), tenure.WhySuperseded)
	t.refused(t.step(stranger(saves(next, "nobody's"))), tenure.WhyUnknown)
	t.saved(mine.Key, "bob's", "after late checkpoints of ann")
	t.must(release(next))
	t.refused(t.step(saves(next, "bob's, late")), tenure.WhyReleased)
	t.saved(mine.Key, "bob's", "after a late checkpoint of bob")
}

func checkpointGoes(t *trial) {
	t.forgetful()
	mine := acquire("checkpoints/goes", "ann")
	t.must(mine)
	t.must(saves(mine, "page 17"))
	t.must(release(mine))
	t.forget(mine.Key)
	if a := t.must(acquire(mine.Key, "bob")); a.Record.Checkpoint != "" {
		t.Fatalf("the record was dropped, and the next has the checkpoint %q", a.Record.Checkpoint)
	}
}
