package etcd

import (
	"errors"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// TestALateRenewalTakesNothingBack: a renewal that its store gave up arrives
// late. It does not undo the renewal that etcd has confirmed meanwhile.
func TestALateRenewalTakesNothingBack(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	client, w := wired(t, c)
	st, other := open(t, client, c.Prefix()), open(t, dial(t, c), c.Prefix())
	mine := claim("late/renewal", "ann")
	must(t, st, mine)
	w.delay(true) // the call is given up, and still in flight
	if a := one(t.Context(), st, then(tenure.Renew, mine)); !errors.Is(a.Err, store.ErrUnknown) {
		t.Fatalf("a renewal without an answer: %v", a.Err)
	}
	w.delay(false)
	deadline := must(t, st, then(tenure.Renew, mine))[0].Record.Deadline
	w.deliver(t)
	if rec, err := other.Get(t.Context(), mine.Key); err != nil || !rec.Deadline.Equal(deadline) {
		t.Errorf("its renewal until %s was confirmed; now it ends at %s, %v", deadline, rec.Deadline, err)
	}
	must(t, st, then(tenure.Renew, mine))
}

// TestALostRenewalIsNotTakenBack: it reached etcd, but its answer was lost. The
// store does not know of it when it renews the lease again.
func TestALostRenewalIsNotTakenBack(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	client, w := wired(t, c)
	st, other := open(t, client, c.Prefix()), open(t, dial(t, c), c.Prefix())
	mine := claim("lost/renewal", "ann")
	must(t, st, mine)
	must(t, st, then(tenure.Renew, mine))
	w.lose(true)
	if a := one(t.Context(), st, then(tenure.Renew, mine)); !errors.Is(a.Err, store.ErrUnknown) {
		t.Fatalf("a renewal without an answer: %v", a.Err)
	}
	w.lose(false)
	before, err := other.Get(t.Context(), mine.Key)
	if err != nil {
		t.Fatal(err)
	}
	must(t, st, then(tenure.Renew, mine))
	if after, err := other.Get(t.Context(), mine.Key); err != nil || after.Deadline.Before(before.Deadline) {
		t.Errorf("it ended at %s, and now at %s, %v", before.Deadline, after.Deadline, err)
	}
}

// TestASuspendedMachineTrustsNoOldPromise: the monotonic clock stood still, and
// etcd's did not. A renewal extends the etcd lease although it seems to last
// long enough.
func TestASuspendedMachineTrustsNoOldPromise(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	client, w := wired(t, c)
	st := open(t, client, c.Prefix())
	mine := claim("suspended", "ann")
	must(t, st, mine)
	st.mu.Lock()
	st.etcdLeases[leaseSeconds(mine.TTL)].goodUntil = clock.System().Now().Add(mine.TTL / 2)
	st.mu.Unlock()
	calls, fast := w.inTime(func() { must(t, st, then(tenure.Renew, mine)) })
	if calls["LeaseKeepAlive"] != 1 && fast {
		t.Errorf("the renewal took %v", calls)
	}
}

// TestAReportFromAnotherMachineMovesNoDeadline, however far apart the clocks
// are.
func TestAReportFromAnotherMachineMovesNoDeadline(t *testing.T) {
	t.Parallel()
	for name, ahead := range map[string]time.Duration{"ahead": 30 * time.Second, "behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := testenv.Etcd(t)
			here, there := otherMachine(t, c, 0), otherMachine(t, c, ahead)
			mine := claim("report/"+name, "ann")
			must(t, here, mine)
			deadline := must(t, here, then(tenure.Renew, mine))[0].Record.Deadline
			report := then(tenure.Report, mine)
			report.Progress = "half"
			must(t, there, report)
			rec, err := here.Get(t.Context(), mine.Key)
			if err != nil || !rec.Deadline.Equal(deadline) || rec.Progress != report.Progress {
				t.Errorf("it ended at %s, and now at %s, with progress %q, %v", deadline, rec.Deadline, rec.Progress, err)
			}
			must(t, here, then(tenure.Renew, mine))
		})
	}
}

// TestAKeyIsPassedOnInOneStep: a release and the next acquire of one batch are
// one transaction. The key is never free, and the answer says whether others
// wait.
func TestAKeyIsPassedOnInOneStep(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	const key = "passed/on"
	client, w := wired(t, c)
	st, other := open(t, client, c.Prefix()), open(t, dial(t, c), c.Prefix())
	mine, next, last := claim(key, "ann"), claim(key, "bob"), claim(key, "carl")
	must(t, st, mine)
	pass := func(from, to tenure.Request) (answers []store.Answer) {
		t.Helper()
		calls, fast := w.inTime(func() { answers = must(t, st, then(tenure.Release, from), to) })
		delete(calls, "LeaseKeepAlive") // beside it, if so much time has passed
		if fast && (calls["Txn"] != 1 || len(calls) != 1) {
			t.Errorf("passing it on took %v", calls)
		}
		return answers
	}
	if answers := pass(mine, next); answers[0].Awaited || answers[1].Record.Cause != tenure.Released {
		t.Errorf("nobody else waits: awaited %t, granted as %s", answers[0].Awaited, answers[1].Record.Cause)
	}
	// Otherwise its watch would begin with a wake-up.
	if a := resolve(t.Context(), other, claim(key, "dora")); !errors.Is(a.Err, tenure.ErrHeld) {
		t.Fatalf("the key is held: %v", a.Err)
	}
	who := newWaiter(t, other, key, 1)
	<-who.wake // it has entered the queue
	queued(t, st, key, 1)
	events := client.Watch(t.Context(), st.names.record(key), clientv3.WithCreatedNotify())
	<-events
	if answers := pass(next, last); !answers[0].Awaited {
		t.Error("another waits, and the release does not say so")
	}
	for _, e := range (<-events).Events {
		if d, err := decodeRecord(key, e.Kv.Value); err != nil || d.rec.State != tenure.Held {
			t.Errorf("others have seen it %s, %v", d.rec.State, err)
		}
	}
	select {
	case <-who.wake:
		t.Error("one who waits was woken by a key that was passed on")
	default:
	}
	if a := must(t, st, then(tenure.Release, last))[0]; !a.Awaited {
		t.Error("another waits, and the last release does not say so")
	}
	if err := who.wait(t.Context(), true); err != nil {
		t.Error(err)
	}
}

// TestALongWaitKeepsItsQueueEntry, and its position in the queue.
func TestALongWaitKeepsItsQueueEntry(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	holder, other := open(t, dial(t, c), c.Prefix()), open(t, dial(t, c), c.Prefix())
	mine := claim("queue/long", "ann")
	must(t, holder, mine)
	newWaiter(t, other, mine.Key, 1)
	queued(t, holder, mine.Key, 1)
	testenv.Eventually(t, "the entry is put again", func() error {
		resp, err := holder.client.Get(t.Context(), holder.names.entry(mine.Key, other.id))
		if err == nil && (len(resp.Kvs) != 1 || resp.Kvs[0].Version < 2) {
			err = fmt.Errorf("it is %v", resp.Kvs)
		}
		return err
	})
	other.mu.Lock()
	defer other.mu.Unlock()
	if a := other.etcdLeases[leaseSeconds(other.queueTTL)]; a == nil || a.remaining() < other.queueTTL/2 {
		t.Error("its etcd lease is not kept alive")
	}
}
