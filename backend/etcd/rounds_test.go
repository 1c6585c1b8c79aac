package etcd

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// TestRoundTrips: a grant takes at most two, a renewal and a release one.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	client, w := wired(t, c)
	st := open(t, client, c.Prefix())
	calls := func(what string, want map[string]int, requests ...tenure.Request) {
		t.Helper()
		got, fast := w.inTime(func() { must(t, st, requests...) })
		delete(got, "LeaseKeepAlive") // beside it, now and then
		if fmt.Sprint(got) != fmt.Sprint(want) && fast {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	first, again, unknown := claim("rounds/1", "ann"), claim("rounds/1", "ann"), claim("rounds/1", "ann")
	calls("the first grant of a store", map[string]int{"LeaseGrant": 1, "Txn": 1}, first)
	calls("a renewal", map[string]int{"Txn": 1}, then(tenure.Renew, first))
	calls("a report", map[string]int{"Txn": 1}, then(tenure.Report, first))
	calls("a release", map[string]int{"Txn": 1}, then(tenure.Release, first))
	calls("a key that was seen freed", map[string]int{"Txn": 1}, again)
	calls("a release", map[string]int{"Txn": 1}, then(tenure.Release, again))
	calls("a key that nobody has used", map[string]int{"Txn": 1}, claim("rounds/2", "ann"))
	st.mu.Lock()
	delete(st.views, "rounds/1")
	st.mu.Unlock()
	calls("a key of which nothing is known", map[string]int{"Txn": 2}, unknown)
	var many, renewals []tenure.Request
	for n := range 90 {
		many = append(many, claim(fmt.Sprintf("rounds/many/%d", n), "ann"))
		renewals = append(renewals, then(tenure.Renew, many[n]))
	}
	calls("90 keys", map[string]int{"Txn": 1}, many...)
	calls("90 renewals", map[string]int{"Txn": 1}, renewals[:40]...)
	var takes, gives []tenure.Request
	for n := range 40 {
		takes = append(takes, claim(fmt.Sprintf("rounds/worn/%d", n), "ann"))
		gives = append(gives, then(tenure.Release, takes[n]))
	}
	must(t, st, takes...)
	must(t, st, gives...)
	var cold, stale, ends []tenure.Request
	st.mu.Lock()
	for n := range 40 {
		cold, stale = append(cold, claim(fmt.Sprintf("rounds/worn/%d", n), "ann")), append(stale, claim(fmt.Sprintf("rounds/worn/%d", n), "ann"))
		ends = append(ends, then(tenure.Release, cold[n]))
		delete(st.views, cold[n].Key)
	}
	st.mu.Unlock()
	calls("40 keys of which nothing is known", map[string]int{"Txn": 2}, cold...)
	must(t, st, ends...)
	other := open(t, dial(t, c), c.Prefix())
	var theirs, given []tenure.Request
	for n, req := range stale {
		theirs = append(theirs, claim(req.Key, "bob"))
		given = append(given, then(tenure.Release, theirs[n]))
	}
	must(t, other, theirs...)
	must(t, other, given...)
	calls("40 keys that others have used since", map[string]int{"Txn": 2}, stale...)
	if a := resolve(t.Context(), st, claim("rounds/1", "bob")); !errors.Is(a.Err, tenure.ErrHeld) {
		t.Errorf("a held key: %v", a.Err)
	}
}

// TestThousandsOfLeasesAreOneEtcdLease: one message at a time keeps it alive,
// and a few small transactions renew all leases.
func TestThousandsOfLeasesAreOneEtcdLease(t *testing.T) {
	t.Parallel()
	const leases = 3000
	c := testenv.EtcdAlone(t, "unsafe-no-fsync: true")
	client, w := wired(t, c)
	st := open(t, client, c.Prefix())
	mine := make([]tenure.Request, leases)
	renewals := make([]tenure.Request, leases)
	for n := range mine {
		// Longer than the test.
		mine[n] = claimFor(fmt.Sprintf("thousands/%d", n), "ann", 10*time.Minute)
		renewals[n] = then(tenure.Renew, mine[n])
	}
	for part := range slices.Chunk(mine, 1000) {
		must(t, st, part...)
	}
	if n := etcdLeases(t, client); n != 1 {
		t.Errorf("%d etcd leases carry them", n)
	}
	// Otherwise the etcd lease would last long enough as it is.
	time.Sleep(time.Until(time.Now().Add(slack + 100*time.Millisecond)))
	began := time.Now()
	calls := w.during(func() {
		for part := range slices.Chunk(renewals, 800) { // as the client sends them
			must(t, st, part...)
		}
	})
	t.Logf("renewing %d leases: %v", leases, calls)
	beats := 5 + int(time.Since(began)/time.Second) // one in two seconds
	if calls["LeaseKeepAlive"] < 1 || calls["LeaseKeepAlive"] > beats || calls["LeaseGrant"] > 0 || calls["Txn"] > leases/80+20*beats {
		t.Errorf("renewing %d leases took %v", leases, calls)
	}
	if n := etcdLeases(t, client); n != 1 {
		t.Errorf("%d etcd leases carry them after a renewal", n)
	}
	// Other stores see the renewals.
	other := open(t, dial(t, c), c.Prefix())
	seen := 0
	for rec, err := range other.List(t.Context(), "thousands/") {
		if err != nil {
			t.Fatal(err)
		}
		if seen++; rec.State != tenure.Held || rec.Deadline.Before(began.Add(rec.TTL-time.Second)) || !rec.Deadline.After(rec.Acquired.Add(rec.TTL)) {
			t.Fatalf("%s is %s until %s", rec.Key, rec.State, rec.Deadline)
		}
	}
	if seen != leases {
		t.Errorf("%d are listed", seen)
	}
}

func etcdLeases(t *testing.T, client *clientv3.Client) int {
	t.Helper()
	resp, err := client.Leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return len(resp.Leases)
}

// TestALostReplyLeavesOneTruth: etcd has carried out the request, but the
// client does not know. It learns so by asking again.
func TestALostReplyLeavesOneTruth(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	client, w := wired(t, c)
	st, near := open(t, client, c.Prefix()), open(t, dial(t, c), c.Prefix())
	must(t, st, claim("lost/warm", "ann"))
	mine := claim("lost/reply", "ann")
	hand := tenure.Request{Verb: tenure.Takeover, Key: mine.Key, Secret: tenure.NewSecret(), Owner: "op", TTL: time.Minute, Actor: "op", Note: "test"}
	for _, req := range []tenure.Request{mine, then(tenure.Renew, mine), then(tenure.Report, mine), then(tenure.Release, mine), hand} {
		w.lose(true)
		if a := one(t.Context(), st, req); !errors.Is(a.Err, store.ErrUnknown) || !a.Record.IsZero() {
			t.Fatalf("%s whose reply was lost: %v, %+v; want unknown", req.Verb, a.Err, a.Record)
		}
		w.lose(false)
		done, err := near.Get(t.Context(), mine.Key)
		if err != nil || done.IsZero() {
			t.Fatalf("%s reached etcd, and the record there is %+v, %v", req.Verb, done, err)
		}
		again := resolve(t.Context(), st, req)
		if again.Err != nil || again.Record.Token != done.Token || again.Record.Terms != done.Terms || again.Record.State != done.State {
			t.Fatalf("%s again: %v, token %d in term %d (%s); etcd had token %d in term %d (%s)",
				req.Verb, again.Err, again.Record.Token, again.Record.Terms, again.Record.State, done.Token, done.Terms, done.State)
		}
	}
}

// TestNothingIsLeftOfOldKeys: keys that were used once are gone after the
// retention, and so are their heartbeats.
func TestNothingIsLeftOfOldKeys(t *testing.T) {
	t.Parallel()
	const keys = 2000
	c := testenv.EtcdAlone(t, "unsafe-no-fsync: true")
	client := dial(t, c)
	before := size(t, c, client)
	st := New(client, &Options{Prefix: c.Prefix(), Retention: time.Second, SweepEvery: -1})
	defer st.Close()
	const batch = 500
	for first := 0; first < keys; first += batch {
		var takes, renewals, ends []tenure.Request
		for n := range batch {
			takes = append(takes, claimFor(fmt.Sprintf("old/%d", first+n), "ann", 40*time.Second))
			renewals, ends = append(renewals, then(tenure.Renew, takes[n])), append(ends, then(tenure.Release, takes[n]))
		}
		must(t, st, takes...)
		must(t, st, renewals[:100]...)
		must(t, st, ends...)
	}
	for range tenure.HistoryLen {
		take := claimFor("old/often", "ann", 40*time.Second)
		must(t, st, take)
		must(t, st, then(tenure.Release, take))
	}
	testenv.Eventually(t, "all is dropped", func() error {
		if _, err := st.Sweep(t.Context()); err != nil {
			return err
		}
		left, err := client.Get(t.Context(), st.names.records(), clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err == nil && left.Count > 0 {
			err = fmt.Errorf("%d of %d are left", left.Count, keys)
		}
		return err
	})
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	last := New(client, &Options{Prefix: c.Prefix(), Retention: time.Second})
	defer last.Close()
	// At once, unless a call was given up. Then the etcd lease may seem to be
	// in use, and expires.
	testenv.Eventually(t, "nothing is left", func() error {
		if _, err := last.Sweep(t.Context()); err != nil {
			return err
		}
		left, err := client.Get(t.Context(), "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if n := etcdLeases(t, client); err == nil && (len(left.Kvs) > 0 || n > 0) {
			err = fmt.Errorf("%d keys, the first is %v, and %d etcd leases", len(left.Kvs), left.Kvs[:min(1, len(left.Kvs))], n)
		}
		return err
	})
	after := size(t, c, client)
	t.Logf("etcd had %d bytes before, and has %d", before, after)
	if after > before+50*keys { // 50 bytes a key
		t.Errorf("etcd has grown from %d to %d bytes", before, after)
	}
}

// size returns etcd's size on disk after compaction and defragmentation.
func size(t *testing.T, c *testenv.EtcdCluster, client *clientv3.Client) int64 {
	t.Helper()
	resp, err := client.Put(t.Context(), "size", "")
	if err == nil {
		_, err = client.Delete(t.Context(), "size")
	}
	if err == nil {
		_, err = client.Compact(t.Context(), resp.Header.Revision+1, clientv3.WithCompactPhysical())
	}
	if err == nil {
		_, err = client.Defragment(t.Context(), c.Addrs()[0])
	}
	if err != nil {
		t.Fatal(err)
	}
	status, err := client.Status(t.Context(), c.Addrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	return status.DbSize
}
