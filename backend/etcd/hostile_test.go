package etcd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/storetest"
	"github.com/croft-dev/croft/tenure"
)

// TestAPlantedRecordTakesNoMemory: it claims many terms. A term takes a hundred
// times as many bytes in memory as in etcd.
func TestAPlantedRecordTakesNoMemory(t *testing.T) {
	now := tenure.Time(time.Now())
	req := claim("k", "ann")
	rec, _, err := tenure.Apply(tenure.Record{}, req, now)
	if err != nil {
		t.Fatal(err)
	}
	rec.History = nil
	whole := (&storedRecord{rec: rec, written: now, clock: newIdentity()}).encode()
	const most = 1 << 20 // etcd takes 1.5 MiB
	for what, value := range map[string][]byte{
		"terms":  append(binary.AppendUvarint([]byte(whole[:len(whole)-1]), most), make([]byte, most)...),
		"guards": append(binary.AppendUvarint([]byte(whole[:len(whole)-3]), most), make([]byte, most)...),
	} {
		took, err := allocated(func() error { _, err := decodeRecord("k", value); return err })
		if !errors.Is(err, ErrDamaged) || took > most {
			t.Errorf("%s: %v, and it took %d bytes", what, err, took)
		}
	}
}

// allocated returns how many bytes f allocates, and its error.
func allocated(f func() error) (uint64, error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc, err
}

// TestAPlantedHeartbeatIsDamage: the error that a listing ends with is short.
func TestAPlantedHeartbeatIsDamage(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	client, ctx := dial(t, c), t.Context()
	st, other := open(t, client, c.Prefix()), open(t, dial(t, c), c.Prefix())
	mine, long := longClaim("planted/beat", "ann"), strings.Repeat("x", 1<<20)
	must(t, st, mine)
	for name, value := range map[string]string{
		st.names.heartbeat(mine.Key): long, st.names.heartbeat(long): "", st.names.record(long): "",
	} {
		testenv.Eventually(t, "it is planted", func() error { _, err := client.Put(ctx, name, value); return err })
	}
	testenv.Eventually(t, "the damage is listed", func() error {
		var failed error
		for _, err := range other.List(ctx, "") {
			failed = err
		}
		if !errors.Is(failed, ErrDamaged) {
			return fmt.Errorf("listed, then %w", failed)
		}
		if len(failed.Error()) > 4096 {
			t.Errorf("an error of %d bytes", len(failed.Error()))
		}
		return nil
	})
	testenv.Eventually(t, "nobody is granted the key", func() error {
		a := one(ctx, other, longClaim(mine.Key, "bob"))
		if !errors.Is(a.Err, ErrDamaged) {
			return fmt.Errorf("a claim is answered %w", a.Err)
		}
		return nil
	})
}

// TestAPlantedHeartbeatCostsNoLease: the store that carries the lease renews it
// and writes over the heartbeat. It does not renew a lease that is over.
func TestAPlantedHeartbeatCostsNoLease(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	client, clock, name := dial(t, c), storetest.NewClock(), newIdentity()
	machine := func() *Store {
		s := open(t, dial(t, c), c.Prefix())
		s.clock, s.domain, s.extraSeconds = clock.Now, name, 3600
		return s
	}
	st, other := machine(), machine()
	mine := claimFor("planted/over", "ann", time.Minute)
	must(t, st, mine)
	plant := func(value string) {
		t.Helper()
		testenv.Eventually(t, "it is planted", func() error {
			_, err := client.Put(t.Context(), st.names.heartbeat(mine.Key), value)
			return err
		})
	}
	for _, value := range []string{"", "x", strings.Repeat("x", 1<<20)} {
		plant(value)
		expectDamaged(t, other, claim(mine.Key, "bob"))
		clock.Advance(20 * time.Second)
		var a store.Answer
		testenv.Eventually(t, "the lease is renewed", func() error {
			a = one(t.Context(), st, then(tenure.Renew, mine))
			return a.Err
		})
		promised := a.Record.Deadline
		if left := promised.Sub(clock.Now()); left != time.Minute {
			t.Errorf("renewed for %s", left)
		}
		wantNoEarlierEnd(t, other, mine.Key, promised)
		if a := resolve(t.Context(), other, claim(mine.Key, "bob")); !errors.Is(a.Err, tenure.ErrHeld) {
			t.Errorf("a claim after the renewal: %v, want held", a.Err)
		}
	}
	report := then(tenure.Report, mine)
	report.Progress = "half"
	must(t, other, report)
	plant("x") // the holder's store has seen neither
	must(t, st, then(tenure.Renew, mine))
	plant("x")
	must(t, st, then(tenure.Release, mine))
	must(t, st, claimFor(mine.Key, "bob", time.Minute))
	mine = claimFor("planted/lapsed", "ann", time.Minute)
	must(t, st, mine)
	plant("x")
	clock.Advance(2 * time.Minute)
	if a := resolve(t.Context(), st, then(tenure.Renew, mine)); !errors.Is(a.Err, tenure.ErrNotOwned) {
		t.Errorf("a renewal after the deadline: %v, want not owned", a.Err)
	}
}

// TestManyDamagedRecordsMakeAShortError, in a listing and in a sweep.
func TestManyDamagedRecordsMakeAShortError(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	client, ctx := dial(t, c), t.Context()
	st := open(t, client, c.Prefix())
	var plants []clientv3.Op
	for n := range 100 {
		plants = append(plants, clientv3.OpPut(st.names.record(fmt.Sprintf("planted/%d", n)), "x"))
	}
	testenv.Eventually(t, "they are planted", func() error { _, err := client.Txn(ctx).Then(plants...).Commit(); return err })
	for what, read := range map[string]func() error{
		"a listing": func() (failed error) {
			for _, err := range st.List(ctx, "") {
				failed = err
			}
			return failed
		},
		"a sweep": func() error { _, err := st.Sweep(ctx); return err },
	} {
		testenv.Eventually(t, what+" reports the damage", func() error {
			failed := read()
			if !errors.Is(failed, ErrDamaged) {
				return fmt.Errorf("failed with %w", failed)
			}
			if said := failed.Error(); strings.Count(said, "planted/") > 50 || !strings.HasSuffix(said, "more") {
				t.Errorf("%s says %s", what, said)
			}
			return nil
		})
	}
}

// TestAPlantedRecordUnseatsNobody: its heartbeat is on the etcd lease of
// another key.
func TestAPlantedRecordUnseatsNobody(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	client, ctx := dial(t, c), t.Context()
	st := open(t, client, c.Prefix())
	mine := claim("seats/mine", "ann")
	must(t, st, mine)
	held := st.cached(mine.Key)
	planted := *held.stored
	planted.rec.Key = "seats/planted"
	if _, err := client.Put(ctx, st.names.record(planted.rec.Key), planted.encode()); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Put(ctx, st.names.heartbeat(planted.rec.Key), held.beat.encode(), clientv3.WithLease(held.own.id)); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the planted record is met", func() error {
		if a := one(ctx, st, claim(planted.rec.Key, "bob")); !errors.Is(a.Err, tenure.ErrHeld) {
			return fmt.Errorf("a claim: %w", a.Err)
		}
		return nil
	})
	must(t, st, then(tenure.Renew, mine), then(tenure.Release, mine))
}

// TestAPlantedTimeUnseatsNobody: a planted record claims that the holder's
// clock wrote it in a hundred years.
func TestAPlantedTimeUnseatsNobody(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	client, ctx := dial(t, c), t.Context()
	holder, other := otherMachine(t, c, 0), otherMachine(t, c, 0)
	mine := claim("times/mine", "ann")
	mine.TTL = tenure.MaxTTL
	must(t, holder, mine)
	planted := *holder.cached(mine.Key).stored
	planted.rec.Key, planted.written = "times/planted", planted.written.AddDate(100, 0, 0)
	if _, err := client.Put(ctx, holder.names.record(planted.rec.Key), planted.encode()); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the planted record is met", func() error {
		rec, err := other.Get(ctx, planted.rec.Key)
		if err == nil && rec.IsZero() {
			err = errors.New("it is not there")
		}
		return err
	})
	if a := resolve(ctx, other, claim(mine.Key, "bob")); !errors.Is(a.Err, tenure.ErrHeld) {
		t.Errorf("a claim of what the holder has: %v, want held", a.Err)
	}
	must(t, holder, then(tenure.Renew, mine), then(tenure.Release, mine))
}

// TestAClockThatWasAheadTakesNothing: it is set back, and then a lease is
// renewed by it.
func TestAClockThatWasAheadTakesNothing(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	ctx := t.Context()
	holder, other := otherMachine(t, c, 0), otherMachine(t, c, 0)
	var ahead atomic.Int64
	holder.clock = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	ahead.Store(int64(2 * tenure.MaxTTL))
	mine := claim("times/ahead", "ann")
	mine.TTL = tenure.MaxTTL
	must(t, holder, mine)
	for _, when := range []string{"before", "after"} {
		if a := resolve(ctx, other, claim(mine.Key, "bob")); !errors.Is(a.Err, tenure.ErrHeld) {
			t.Errorf("%s it is set back, a claim of what the holder has: %v, want held", when, a.Err)
		}
		ahead.Store(0)
		must(t, holder, then(tenure.Renew, mine))
	}
	must(t, holder, then(tenure.Release, mine))
}

// TestPlantedNamesHideNothing: a request that had all of them would be larger
// than etcd takes.
func TestPlantedNamesHideNothing(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	client := dial(t, c)
	st := open(t, client, c.Prefix())
	good := longClaim("z/good", "ann")
	must(t, st, good)
	lease := st.cached(good.Key).stored.encode()
	for n := range 3 {
		var plants []clientv3.Op
		for m := range 30 {
			plants = append(plants, clientv3.OpPut(st.names.record(fmt.Sprintf("%d/%d/%s", n, m, strings.Repeat("x", 30_000))), lease))
		}
		testenv.Eventually(t, "they are planted", func() error { _, err := client.Txn(t.Context()).Then(plants...).Commit(); return err })
	}
	testenv.Eventually(t, "the good record is listed", func() error {
		var found bool
		var failed error
		for rec, err := range st.List(t.Context(), "") {
			found, failed = found || rec.Key == good.Key, err
		}
		if !found || !errors.Is(failed, ErrDamaged) {
			return fmt.Errorf("it is listed: %t; then %w", found, failed)
		}
		return nil
	})
}

// TestPlantedValuesHideNothing: they are below the store's prefix, under any
// name.
func TestPlantedValuesHideNothing(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	client, ctx := dial(t, c), t.Context()
	st := open(t, client, c.Prefix())
	good := claim("planted/good", "ann")
	must(t, st, good)
	whole := st.cached(good.Key).stored.encode()
	for _, name := range []string{
		st.names.record("planted/../x"), st.names.record("planted/\x1b[2Jx"), st.names.record(""), st.names.record("planted/large"),
		st.names.heartbeat("planted/good") + "x", st.names.queue("planted/good") + "x", string(st.names) + "q/x",
	} {
		value := whole
		if strings.HasSuffix(name, "large") {
			value = strings.Repeat("x", 1<<20)
		}
		if _, err := client.Put(ctx, name, value); err != nil {
			t.Fatal(err)
		}
	}
	testenv.Eventually(t, "the others are listed, then the damage", func() error {
		var keys []string
		var failed error
		for rec, err := range st.List(ctx, "") {
			if failed = err; err == nil {
				keys = append(keys, rec.Key)
			}
		}
		if strings.Join(keys, " ") != good.Key || !errors.Is(failed, ErrDamaged) || strings.Contains(failed.Error(), "\x1b") || len(failed.Error()) > 4096 {
			return fmt.Errorf("listed %q, then %w", keys, failed)
		}
		return nil
	})
	must(t, st, then(tenure.Renew, good), then(tenure.Release, good))
	must(t, st, claim(good.Key, "bob"))
}

func TestAPlantedMarkAdmitsNothing(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	client, ctx := dial(t, c), t.Context()
	for _, mark := range []string{`{"key":"a//b","token":1}`, `{"key":"a","token":-1}`, `{"key":"a","token":9007199254740992}`, `{"key":"a","token":1,"grant":"x"}`, `{}`, strings.Repeat("[", 100_000)} {
		g, err := OpenGuard(client, c.Prefix()+"planted mark", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Put(ctx, g.mark, `{"mark":`+mark+`}`); err != nil {
			t.Fatal(err)
		}
		if _, err := g.Write(ctx, stamp(20, 2, 0), strings.NewReader("never")); !errors.Is(err, ErrMarkDamaged) || len(err.Error()) > 4096 {
			t.Errorf("the mark %.80s: %v, want damaged", mark, err)
		}
	}
}

// TestUsersOfOneClusterKeepApart: one user may read the store's prefix, another
// has a prefix of its own. Neither can change or end a lease of the store.
func TestUsersOfOneClusterKeepApart(t *testing.T) {
	t.Parallel()
	c := testenv.EtcdAlone(t, "unsafe-no-fsync: true")
	root, ctx := dial(t, c), t.Context()
	grant := func(role, prefix string, right clientv3.PermissionType) func() error {
		return func() error {
			_, err := root.RoleGrantPermission(ctx, role, prefix, clientv3.GetPrefixRangeEnd(prefix), right)
			return err
		}
	}
	steps := []func() error{}
	for _, user := range []string{"root", "owner", "reader", "neighbour"} {
		steps = append(steps,
			func() error { _, err := root.RoleAdd(ctx, user); return err },
			func() error { _, err := root.UserAdd(ctx, user, "hunter2"); return err },
			func() error { _, err := root.UserGrantRole(ctx, user, user); return err })
	}
	steps = append(steps,
		grant("owner", "team-a/", clientv3.PermissionType(clientv3.PermReadWrite)),
		grant("reader", "team-a/", clientv3.PermissionType(clientv3.PermRead)),
		grant("neighbour", "team-b/", clientv3.PermissionType(clientv3.PermReadWrite)),
		func() error { _, err := root.AuthEnable(ctx); return err })
	for _, step := range steps {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	as := func(user string) *clientv3.Client {
		var client *clientv3.Client
		testenv.Eventually(t, user+" logs in", func() (err error) {
			client, err = clientv3.New(clientv3.Config{Endpoints: c.Addrs(), Username: user, Password: "hunter2", DialTimeout: testenv.Patience / 4, Logger: zap.NewNop()})
			return err
		})
		t.Cleanup(func() { client.Close() })
		return client
	}
	owner, reader, neighbour := open(t, as("owner"), "team-a/"), open(t, as("reader"), "team-a/"), as("neighbour")
	mine := claim("jobs/one", "ann")
	must(t, owner, mine)
	testenv.Eventually(t, "the reader reads", func() error {
		rec, err := reader.Get(ctx, mine.Key)
		if err == nil && rec.Owner != "ann" {
			err = fmt.Errorf("the owner is %q", rec.Owner)
		}
		for _, listed := range reader.List(ctx, "") {
			err = errors.Join(err, listed)
		}
		return err
	})
	for what, req := range map[string]tenure.Request{
		"a claim":    claim("jobs/two", "eve"),
		"a takeover": {Verb: tenure.Takeover, Key: mine.Key, Secret: tenure.NewSecret(), Owner: "eve", TTL: time.Minute, Actor: "eve", Note: "mine now"},
	} {
		testenv.Eventually(t, what+" of the reader is refused", func() error {
			a := one(ctx, reader, req)
			if !errors.Is(a.Err, store.ErrUnknown) {
				t.Fatalf("%s: %v, want unknown", what, a.Err)
			}
			if !strings.Contains(a.Err.Error(), "role") {
				return a.Err
			}
			return nil
		})
	}
	lease := etcdLeaseOf(owner, mine.TTL)
	for name, client := range map[string]*clientv3.Client{"reader": reader.client, "neighbour": neighbour} {
		if _, err := client.Revoke(ctx, lease); err == nil {
			t.Errorf("the %s has ended the etcd lease of another", name)
		}
		if _, err := client.Put(ctx, "team-a/r/jobs/one", "x"); err == nil {
			t.Errorf("the %s has written to the record of another", name)
		}
	}
	if _, err := neighbour.Get(ctx, "team-a/", clientv3.WithPrefix()); err == nil {
		t.Error("the neighbour has read records of another")
	}
	must(t, owner, then(tenure.Renew, mine), then(tenure.Release, mine))
}

// TestNobodyKeepsADeadHoldersKey from a claim that waits. etcd lets every user
// keep any etcd lease alive. A store on another machine does not know the
// holder's clock. It is granted the key when it has seen the record for a TTL.
func TestNobodyKeepsADeadHoldersKey(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	client := dial(t, c)
	untilInTime(t, func(n int) bool {
		dead, next := otherMachine(t, c, 0), otherMachine(t, c, 0)
		mine := claimFor(fmt.Sprintf("kept/key/%d", n), "ann", 2*time.Second)
		must(t, dead, mine)
		lease := etcdLeaseOf(dead, mine.TTL)
		if _, err := client.KeepAlive(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		dead.Close() // no heartbeat says that the lease is over
		rec, _ := grantedAt(t, next, mine.Key)
		live, err := client.Get(t.Context(), next.names.heartbeat(mine.Key))
		if err != nil || len(live.Kvs) == 0 {
			return false // the machine has stalled, and the etcd lease is over
		}
		if rec.Owner != "bob" || rec.Cause != tenure.Expired {
			t.Errorf("granted to %s, as %s", rec.Owner, rec.Cause)
		}
		return true
	})
}

// TestAURLReadsNoDevice: somebody else may have made the URL that names the
// certificates.
func TestAURLReadsNoDevice(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{"etcds://h/?cacert=/dev/zero", "etcds://h/?cert=/dev/zero&key=/dev/zero"} {
		if _, err := store.Open(t.Context(), raw); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("%s: %v, want invalid", raw, err)
		}
	}
}
