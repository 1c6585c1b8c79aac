package etcd

import (
	"errors"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/tenure"
)

// TestAnOlderReadReplacesNoNewerView: answers may overtake each other.
func TestAnOlderReadReplacesNoNewerView(t *testing.T) {
	t.Parallel()
	s := New(nil, nil)
	defer s.Close()
	newer, older := &view{mod: 7, asOf: 9}, &view{mod: 5, asOf: 8}
	s.mu.Lock()
	s.remember("views/key", newer)
	s.remember("views/key", older)
	s.mu.Unlock()
	if got := s.cached("views/key"); got != newer {
		t.Errorf("remembered is what was so at revision %d", got.asOf)
	}
}

// TestARestoreEmptiesTheCache: revisions continue from the backup's. Another
// record may get the very revision at which a key was cached.
func TestARestoreEmptiesTheCache(t *testing.T) {
	t.Parallel()
	before, after := testenv.EtcdAlone(t, "unsafe-no-fsync: true"), testenv.EtcdAlone(t, "unsafe-no-fsync: true")
	client := dial(t, before)
	st := open(t, client, before.Prefix())
	const key = "restored/key"
	for n := range 20 {
		must(t, st, claim(fmt.Sprintf("restored/other/%d", n), "ann"))
	}
	mine := claim(key, "ann")
	must(t, st, mine)
	must(t, st, then(tenure.Release, mine))
	seen := st.cached(key).mod
	for n := range 20 {
		must(t, st, claim(fmt.Sprintf("restored/more/%d", n), "ann"))
	}
	g, err := OpenGuard(client, "restored/guarded", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Do(t.Context(), stamp(30, 1, 0), clientv3.OpPut(g.key, "late")); err != nil {
		t.Fatal(err)
	}

	// After the restore bob holds the key. Its record has the revision of the
	// freed record that ann wrote before.
	there := dial(t, after)
	other := open(t, there, after.Prefix())
	must(t, other, claim("restored/warm", "bob"))
	for {
		resp, err := there.Put(t.Context(), "filler", "")
		if err != nil {
			t.Fatal(err)
		}
		if resp.Header.Revision == seen-1 {
			break
		}
	}
	must(t, other, claim(key, "bob"))
	if got := other.cached(key).mod; got != seen {
		t.Fatalf("the record has revision %d, and was to have %d", got, seen)
	}
	client.SetEndpoints(after.Addrs()...)
	testenv.Eventually(t, "the client has found what was restored", func() error {
		rec, err := st.Get(t.Context(), "restored/warm")
		if err == nil && rec.Owner != "bob" {
			err = errors.New("not yet")
		}
		return err
	})
	if a := resolve(t.Context(), st, claim(key, "ann")); !errors.Is(a.Err, tenure.ErrHeld) {
		t.Errorf("bob holds the key; ann's acquire is answered %v", a.Err)
	}
	if mark, err := g.Mark(t.Context()); err != nil || mark.Key != "" || g.known().mod != 0 {
		t.Errorf("the mark that was lost: %+v, %v", mark, err)
	}
}

// TestWaitersQueueAgainAfterARestore, and are woken. A watch that continued at
// its old revision would hear nothing until as much has been written again.
func TestWaitersQueueAgainAfterARestore(t *testing.T) {
	t.Parallel()
	before, after := testenv.EtcdAlone(t, "unsafe-no-fsync: true"), testenv.EtcdAlone(t, "unsafe-no-fsync: true")
	const key = "restored/queue"
	client := dial(t, before)
	st, holder, other := open(t, client, before.Prefix()), open(t, dial(t, before), before.Prefix()), open(t, dial(t, after), before.Prefix())
	st.queueTTL = time.Hour // the etcd lease does not show the restore
	mine := longClaim(key, "holder")
	must(t, holder, mine)
	must(t, other, mine) // as it was then
	for range 100 {
		if _, err := client.Put(t.Context(), "filler", ""); err != nil {
			t.Fatal(err)
		}
	}
	next := longClaim(key, "ann")
	asks := func() {
		t.Helper()
		if a := resolve(t.Context(), st, next); !errors.Is(a.Err, tenure.ErrHeld) {
			t.Fatalf("the key is held: %v", a.Err)
		}
	}
	asks()
	wake, err := st.Watch(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	queued(t, holder, key, 1)
	client.SetEndpoints(after.Addrs()...)
	testenv.Eventually(t, "it is in the queue there", func() error {
		asks()
		resp, err := other.client.Get(t.Context(), other.names.entry(key, st.id))
		if err == nil && len(resp.Kvs) == 0 {
			err = errors.New("it is not")
		}
		return err
	})
	must(t, other, then(tenure.Release, mine))
	testenv.Eventually(t, "it is told there, and gets the key", func() error {
		select {
		case <-wake:
		default:
			return errors.New("it is not")
		}
		return resolve(t.Context(), st, next).Err
	})
}
