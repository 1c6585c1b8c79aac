package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// listen asks a store for operators' acts until it succeeds.
func listen(t *testing.T, st *Store) <-chan string {
	t.Helper()
	var keys <-chan string
	testenv.Eventually(t, "the store tells of acts", func() (err error) {
		keys, err = st.Acts(t.Context())
		return err
	})
	return keys
}

// expectKey waits until a key is announced. It fails at any other key.
func expectKey(t *testing.T, keys <-chan string, want string) {
	t.Helper()
	select {
	case key, open := <-keys:
		if !open || key != want {
			t.Fatalf("told of %q, %t; want %q", key, open, want)
		}
	case <-time.After(testenv.Patience):
		t.Fatalf("nobody was told of %q", want)
	}
}

// expectClosed waits until a channel is closed.
func expectClosed(t *testing.T, keys <-chan string) {
	t.Helper()
	late := time.After(testenv.Patience)
	for open := true; open; {
		select {
		case _, open = <-keys:
		case <-late:
			t.Fatal("the channel stays open")
		}
	}
}

// hearing returns the watch of acts, or nil.
func hearing(st *Store) *watch {
	st.listener.mu.Lock()
	defer st.listener.mu.Unlock()
	return st.listener.watches[acts]
}

func revoke(key string) tenure.Request {
	return tenure.Request{
		Verb: tenure.Revoke, Key: key, Secret: tenure.NewSecret(), Actor: "op", Note: "stuck",
	}
}

// TestATakeoverEndsTheHoldersContextLongBeforeItsRenewal: the renewal is due
// after a third of the TTL.
func TestATakeoverEndsTheHoldersContextLongBeforeItsRenewal(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	st := open(t, dial(t, c), c.Prefix())
	holder := croft.New(st, nil)
	defer holder.Close()
	operator := croft.New(open(t, dial(t, c), c.Prefix()), nil)
	defer operator.Close()
	l, err := holder.Acquire(t.Context(), "acts/job", &croft.LeaseOptions{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the holder listens", func() error {
		if hearing(st) == nil {
			return errors.New("not yet")
		}
		return nil
	})
	listen(t, st) // returns when the watch has begun
	began := time.Now()
	if _, err := operator.Takeover(t.Context(), l.Key(), croft.ByHand{Note: "stuck"}); err != nil {
		t.Fatal(err)
	}
	acted := time.Now()
	select {
	case <-l.Done():
		t.Logf("the context ended %s after the takeover was sent, %s after its answer",
			time.Since(began), time.Since(acted))
	case <-time.After(10 * time.Second):
		t.Fatal("the holder has not learned of the takeover")
	}
	if err := l.Err(); !errors.Is(err, croft.ErrLost) {
		t.Errorf("the lease ended with %v", err)
	}
}

// TestActsOfOneBatchHaveNoticesOfTheirOwn. The number of notices is bounded,
// and they are not taken for records.
func TestActsOfOneBatchHaveNoticesOfTheirOwn(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	client := dial(t, c)
	st, other := open(t, client, c.Prefix()), open(t, dial(t, c), c.Prefix())
	const most = 250
	for _, name := range []string{"first", "again"} {
		var claims, acts []tenure.Request
		missing := map[string]bool{}
		for n := range most {
			key := fmt.Sprintf("batch/%s/%d", name, n)
			if n%3 > 0 { // the store knows nothing of the others
				claims = append(claims, claim(key, "ann"))
			}
			acts = append(acts, revoke(key))
			missing[key] = true
		}
		must(t, other, claims...)
		now, err := client.Get(t.Context(), "now")
		if err != nil {
			t.Fatal(err)
		}
		must(t, st, append(acts, claim("batch/quiet/"+name, "ann"))...)
		ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
		for resp := range client.Watch(ctx, st.names.notices(), clientv3.WithPrefix(),
			clientv3.WithRev(now.Header.Revision+1)) {
			for _, e := range resp.Events {
				if strings.HasPrefix(string(e.Kv.Value), "batch/quiet") {
					t.Errorf("a claim has a notice: %s", e.Kv.Value)
				}
				delete(missing, string(e.Kv.Value))
			}
			if len(missing) == 0 {
				break
			}
		}
		cancel()
		if len(missing) > 0 {
			t.Errorf("%s: %d acts have no notice", name, len(missing))
		}
	}
	resp, err := client.Get(t.Context(), st.names.notices(), clientv3.WithPrefix())
	if err != nil || len(resp.Kvs) > maxGroups {
		t.Errorf("%d notices are left, %v", len(resp.Kvs), err)
	}
	listed := 0
	for _, err := range st.List(t.Context(), "") {
		if listed++; err != nil {
			t.Errorf("a listing: %v", err)
		}
	}
	if want := 2*most + 2; listed != want {
		t.Errorf("%d records are listed, want %d", listed, want)
	}
	if _, err := st.Sweep(t.Context()); err != nil {
		t.Errorf("a sweep: %v", err)
	}
	findings, err := st.Examine(t.Context())
	for _, f := range findings {
		if f.Check == "keys" && f.Level != store.OK {
			t.Errorf("the doctor says %+v", f)
		}
	}
	if err != nil {
		t.Error(err)
	}
}

// TestAPlantedNoticeIsNoKey: values that cannot be keys are not passed on.
func TestAPlantedNoticeIsNoKey(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	st := open(t, dial(t, c), c.Prefix())
	keys := listen(t, st)
	for name, value := range map[string]string{
		"0": "", "1": "a\x00b", "2": "\xff", "3": "../up", "4": "/etc/passwd",
		"5": strings.Repeat("x", fence.MaxKey+1), "6": strings.Repeat("x", 1<<20),
		"": "a\nb", "strange/name": "a//b",
	} {
		if _, err := st.client.Put(t.Context(), st.names.notices()+name, value); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := st.client.Delete(t.Context(), st.names.notices(), clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	must(t, st, revoke("acts/true"))
	expectKey(t, keys, "acts/true")
}

// TestTheWatchOfActsEndsWithItsListeners: there is no watch when nobody listens
// or the store is closed.
func TestTheWatchOfActsEndsWithItsListeners(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	client, w := wired(t, c)
	st := New(client, &Options{Prefix: c.Prefix(), SweepEvery: -1})
	defer st.Close()
	st.hub.Kept = 0
	one, endOne := context.WithCancel(t.Context())
	two, endTwo := context.WithCancel(t.Context())
	defer endTwo()
	var channels []<-chan string
	opened := w.during(func() {
		for _, ctx := range []context.Context{one, two, two} {
			keys, err := st.Acts(ctx)
			if err != nil {
				t.Fatal(err)
			}
			channels = append(channels, keys)
		}
	})
	if opened["Watch"] != 1 || len(opened) != 1 {
		t.Errorf("three listeners make calls %v, want one watch", opened)
	}
	first := hearing(st)
	endOne()
	expectClosed(t, channels[0])
	must(t, st, revoke("acts/one"))
	expectKey(t, channels[1], "acts/one")
	expectKey(t, channels[2], "acts/one")
	endTwo()
	expectClosed(t, channels[1])
	expectClosed(t, channels[2])
	testenv.Eventually(t, "the watch ends", func() error {
		if hearing(st) != nil {
			return errors.New("it is open")
		}
		return nil
	})
	again := listen(t, st)
	if hearing(st) == first {
		t.Error("a watch that has ended is used again")
	}
	must(t, st, revoke("acts/two"))
	expectKey(t, again, "acts/two")
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	expectClosed(t, again)
	if _, err := st.Acts(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed store: %v", err)
	}
}

// TestACompactionEndsTheWatchOfActs if the watch was interrupted meanwhile. The
// channels are closed, and new listeners hear of acts again.
func TestACompactionEndsTheWatchOfActs(t *testing.T) {
	t.Parallel()
	c := testenv.EtcdAlone(t, "unsafe-no-fsync: true") // other tests read old revisions
	network := testenv.NewNetwork(t, c.Addrs()[0])
	st := open(t, dial(t, c, func(config *clientv3.Config) {
		config.Endpoints = []string{network.Addr}
	}), c.Prefix())
	other := open(t, dial(t, c), c.Prefix())
	keys := listen(t, st)
	must(t, other, revoke("acts/before"))
	expectKey(t, keys, "acts/before")
	network.LoseReplies(func() {
		must(t, other, revoke("acts/missed"))
		must(t, other, revoke("acts/lost"))
		now, err := other.client.Get(t.Context(), "now")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := other.client.Compact(t.Context(), now.Header.Revision); err != nil {
			t.Fatal(err)
		}
	})
	expectClosed(t, keys)
	keys = listen(t, st)
	must(t, other, revoke("acts/after"))
	expectKey(t, keys, "acts/after")
}

// TestActsAreToldWhenMembersGo: the watch goes on through another member, or
// listeners ask again.
func TestActsAreToldWhenMembersGo(t *testing.T) {
	t.Parallel()
	c := testenv.EtcdThree(t, "unsafe-no-fsync: true")
	st, other := open(t, dial(t, c), c.Prefix()), open(t, dial(t, c), c.Prefix())
	keys, broken, n := listen(t, st), 0, 0
	for _, m := range c.Members {
		m.Kill()
		killed, acted := time.Now(), time.Now()
		for told := false; !told; {
			if time.Since(killed) > testenv.Patience {
				t.Fatal("nobody is told of acts any more")
			}
			n++
			must(t, other, revoke(fmt.Sprintf("acts/%d", n)))
			acted = time.Now()
			select {
			case _, told = <-keys:
				if !told {
					broken++
					keys = listen(t, st)
				}
			case <-time.After(time.Second):
			}
		}
		t.Logf("told %s after an act, %s after a kill", time.Since(acted), time.Since(killed))
		m.Restart(t)
		testenv.Eventually(t, "the member is back", m.Ready)
	}
	t.Logf("%d acts, the watch broke %d times", n, broken)
}

// TestActsAreHeardAfterARestore: a watch that continued at its old revision
// would hear nothing for long.
func TestActsAreHeardAfterARestore(t *testing.T) {
	t.Parallel()
	before := testenv.EtcdAlone(t, "unsafe-no-fsync: true")
	after := testenv.EtcdAlone(t, "unsafe-no-fsync: true")
	client := dial(t, before)
	st, other := open(t, client, before.Prefix()), open(t, dial(t, after), before.Prefix())
	for range 100 {
		if _, err := client.Put(t.Context(), "filler", ""); err != nil {
			t.Fatal(err)
		}
	}
	keys := listen(t, st)
	must(t, st, revoke("acts/before"))
	expectKey(t, keys, "acts/before")
	must(t, other, revoke("acts/there"))
	client.SetEndpoints(after.Addrs()...)
	n := 0
	testenv.Eventually(t, "the channel is closed", func() error {
		n++
		must(t, st, claim(fmt.Sprintf("acts/any/%d", n), "ann")) // any call shows it
		select {
		case _, open := <-keys:
			if !open {
				return nil
			}
		default:
		}
		return errors.New("it is open")
	})
	keys = listen(t, st)
	must(t, other, revoke("acts/after"))
	expectKey(t, keys, "acts/after")
}

// TestUsersOfAPrefixAreToldOfActs: a role for the prefix is enough. If the
// login of that watch lapses, waiting for keys still works.
func TestUsersOfAPrefixAreToldOfActs(t *testing.T) {
	t.Parallel()
	c := testenv.EtcdAlone(t, "unsafe-no-fsync: true")
	withUsers(t, c)
	login := func(user, password string) func(*clientv3.Config) {
		return func(config *clientv3.Config) { config.Username, config.Password = user, password }
	}
	root := dial(t, c, login("root", "secret"))
	st := open(t, dial(t, c, login("ann", "hunter2")), "team-a/")
	keys := listen(t, st)
	must(t, st, revoke("acts/one"))
	expectKey(t, keys, "acts/one")
	if _, err := open(t, st.client, "team-b/").Acts(t.Context()); !errors.Is(err, store.ErrUnknown) {
		t.Errorf("acts on keys of others: %v", err)
	}
	// etcd forgets the login.
	if _, err := root.UserChangePassword(t.Context(), "ann", "hunter2"); err != nil {
		t.Fatal(err)
	}
	mine := claim("acts/two", "ann")
	must(t, st, mine)
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	if _, err := st.Watch(ctx, mine.Key); err != nil {
		t.Errorf("a key cannot be waited for: %v", err)
	}
	must(t, st, revoke("acts/three"))
	expectKey(t, keys, "acts/three")
}
