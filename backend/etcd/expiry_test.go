package etcd

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// otherMachine makes a store on another machine whose clock is ahead.
func otherMachine(tb testing.TB, c *testenv.EtcdCluster, ahead time.Duration) *Store {
	s := open(tb, dial(tb, c), c.Prefix())
	s.domain, s.clock = newIdentity(), func() time.Time { return time.Now().Add(ahead) }
	return s
}

func claimFor(key, owner string, ttl time.Duration) tenure.Request {
	req := claim(key, owner)
	req.TTL = ttl
	return req
}

// longClaim is for tests in which no lease may lapse.
func longClaim(key, owner string) tenure.Request { return claimFor(key, owner, time.Hour) }

// untilInTime repeats try until it reports true: until the machine did not
// stall so long that leases lapsed which were to be renewed.
func untilInTime(t *testing.T, try func(n int) bool) {
	t.Helper()
	for n := range 10 {
		if try(n) {
			return
		}
	}
	t.Error("the machine has stalled each time")
}

// grantedAt asks until a key is granted, and returns when that was.
func grantedAt(t *testing.T, st *Store, key string) (tenure.Record, time.Time) {
	t.Helper()
	var rec tenure.Record
	testenv.Eventually(t, key+" is granted", func() error {
		a := one(t.Context(), st, claim(key, "bob"))
		rec = a.Record
		return a.Err
	})
	return rec, time.Now()
}

// TestClocksNeedNotAgree: clocks are an hour apart. No machine takes a lease
// from another before its deadline, and each gets it soon afterwards.
func TestClocksNeedNotAgree(t *testing.T) {
	t.Parallel()
	for name, ahead := range map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour, "the same": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := testenv.Etcd(t)
			var (
				here, there *Store
				mine        tenure.Request
				token       fence.Token
				renewed     time.Time
			)
			untilInTime(t, func(n int) bool {
				here, there = otherMachine(t, c, 0), otherMachine(t, c, ahead)
				mine = claimFor(fmt.Sprintf("skew/%s/%d", name, n), "ann", 4*time.Second)
				began := time.Now()
				token = must(t, here, mine)[0].Record.Token
				a := resolve(t.Context(), there, claim(mine.Key, "bob"))
				// Renewed on time, it stays with its holder.
				time.Sleep(time.Until(began.Add(mine.TTL / 3)))
				renewed = time.Now() // the time before the sending counts
				again := resolve(t.Context(), here, then(tenure.Renew, mine))
				if time.Since(began) > mine.TTL {
					return false
				}
				var held *tenure.HeldError
				if !errors.As(a.Err, &held) || held.Remaining() <= 0 || ahead >= 0 && held.Remaining() > 2*mine.TTL {
					t.Errorf("on the other machine: %v, want it held for about %s", a.Err, mine.TTL)
				}
				if again.Err != nil {
					t.Errorf("it is renewed: %v", again.Err)
				}
				return true
			})
			rec, at := grantedAt(t, there, mine.Key)
			if held := at.Sub(renewed); held < mine.TTL-100*time.Millisecond || rec.Cause != tenure.Expired {
				t.Errorf("granted %s after it was renewed for %s, as %s", held, mine.TTL, rec.Cause)
			}
			if rec.Token <= token {
				t.Errorf("token %d after %d", rec.Token, token)
			}
			if a := resolve(t.Context(), here, then(tenure.Renew, mine)); !errors.Is(a.Err, tenure.ErrNotOwned) {
				t.Errorf("the holder before: %v", a.Err)
			}
		})
	}
}

// TestAStalledLeaseEndsAlone: leases of one TTL share an etcd lease that is
// kept alive. Still each ends at its own deadline, also for stores that see it
// for the first time then.
func TestAStalledLeaseEndsAlone(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	const ttl = 3 * time.Second
	untilInTime(t, func(n int) bool {
		here := otherMachine(t, c, 0)
		kept, stalled := claimFor(fmt.Sprintf("stall/kept/%d", n), "ann", ttl), claimFor(fmt.Sprintf("stall/stalled/%d", n), "ann", ttl)
		renewed := time.Now()
		deadline := must(t, here, kept, stalled)[1].Record.Deadline
		for time.Now().Before(deadline.Add(ttl)) {
			time.Sleep(ttl / 6)
			now := time.Now()
			again := resolve(t.Context(), here, then(tenure.Renew, kept))
			there := otherMachine(t, c, -time.Hour) // has not seen the lease before
			refused := resolve(t.Context(), there, claim(kept.Key, "bob"))
			if time.Since(renewed) > ttl {
				return false
			}
			renewed = now
			if again.Err != nil || !errors.Is(refused.Err, tenure.ErrHeld) {
				t.Fatalf("the lease that is renewed: %v; to others %v", again.Err, refused.Err)
			}
			a := resolve(t.Context(), there, claim(stalled.Key, "bob"))
			if a.Err == nil && time.Now().Before(deadline) {
				t.Fatalf("the stalled lease was granted %s before its deadline", time.Until(deadline))
			}
			if a.Err == nil {
				if etcdLeaseOf(here, ttl) == 0 {
					t.Error("the others have lost their etcd lease")
				}
				return true
			}
			if !errors.Is(a.Err, tenure.ErrHeld) {
				t.Fatal(a.Err)
			}
		}
		if time.Since(deadline) > 2*ttl {
			return false
		}
		t.Error("the stalled lease was still held a TTL after its deadline")
		return true
	})
}

// TestADeadOwnersLeaseEndsWithItsEtcdLease, for a store that has not seen it
// before.
func TestADeadOwnersLeaseEndsWithItsEtcdLease(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	here := otherMachine(t, c, 0)
	mine := claimFor("dead/owner", "ann", time.Second)
	must(t, here, mine)
	died := time.Now()
	here.Close()
	testenv.Eventually(t, "it is granted", func() error {
		there := otherMachine(t, c, -time.Hour)
		a := one(t.Context(), there, claim(mine.Key, "bob"))
		if a.Err == nil && time.Since(died) < mine.TTL-50*time.Millisecond {
			t.Errorf("granted %s after the owner died, its TTL is %s", time.Since(died), mine.TTL)
		}
		if a.Err == nil && (a.Record.Cause != tenure.Expired || a.Record.Terms != 2) {
			t.Errorf("granted as %s in term %d", a.Record.Cause, a.Record.Terms)
		}
		return a.Err
	})
}

// TestAnEtcdLeaseThatIsGoneIsReplaced: somebody revoked it. The leases on it
// are over, and the store goes on with another etcd lease.
func TestAnEtcdLeaseThatIsGoneIsReplaced(t *testing.T) {
	t.Parallel()
	c := testenv.EtcdAlone(t, "unsafe-no-fsync: true")
	client := dial(t, c)
	st := open(t, client, c.Prefix())
	for round := range 3 {
		mine := claim(fmt.Sprintf("gone/%d", round), "ann")
		must(t, st, mine, claim(fmt.Sprintf("gone/more/%d", round), "ann"))
		must(t, st, then(tenure.Renew, mine))
		leases, err := client.Leases(t.Context())
		if err != nil || len(leases.Leases) != 1 {
			t.Fatalf("%v, %v", leases, err)
		}
		if _, err := client.Revoke(t.Context(), leases.Leases[0].ID); err != nil {
			t.Fatal(err)
		}
		if a := resolve(t.Context(), st, then(tenure.Renew, mine)); !errors.Is(a.Err, tenure.ErrNotOwned) {
			t.Errorf("a renewal after that: %v", a.Err)
		}
		must(t, st, claim(mine.Key, "bob"))
	}
}

// TestAnAcquireSentAgainOnALostEtcdLeaseGivesNoAuthority: the acquire was
// granted, the reply was lost, and then the etcd lease was lost.
func TestAnAcquireSentAgainOnALostEtcdLeaseGivesNoAuthority(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	client, w := wired(t, c)
	st, other := open(t, client, c.Prefix()), open(t, dial(t, c), c.Prefix())
	must(t, st, claim("again/warm", "ann"))
	mine := claim("again/lost", "ann")
	w.lose(true)
	if a := one(t.Context(), st, mine); !errors.Is(a.Err, store.ErrUnknown) {
		t.Fatalf("a grant without an answer: %v", a.Err)
	}
	w.lose(false)
	if _, err := other.client.Revoke(t.Context(), etcdLeaseOf(st, mine.TTL)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if a := one(t.Context(), st, mine); a.Err == nil {
			t.Fatalf("sent again, it is answered as held until %s, and etcd keeps it no more", a.Record.Deadline)
		}
	}
	must(t, other, claim(mine.Key, "bob"))
	if a := resolve(t.Context(), st, mine); !errors.Is(a.Err, tenure.ErrNotOwned) {
		t.Errorf("sent again after another was granted the key: %v", a.Err)
	}
}

// TestAnAcquireSentAgainOnAnEtcdLeaseThatNobodyKeepsGivesNoAuthority: the store
// has dropped the etcd lease, but etcd still has it.
func TestAnAcquireSentAgainOnAnEtcdLeaseThatNobodyKeepsGivesNoAuthority(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	client, w := wired(t, c)
	st := open(t, client, c.Prefix())
	must(t, st, claim("again/warm", "ann"))
	mine := claim("again/given-up", "ann")
	w.lose(true)
	if a := one(t.Context(), st, mine); !errors.Is(a.Err, store.ErrUnknown) {
		t.Fatalf("a grant without an answer: %v", a.Err)
	}
	w.lose(false)
	st.leaseLost(st.etcdLeaseFor(leaseSeconds(mine.TTL)))
	if a := one(t.Context(), st, mine); !errors.Is(a.Err, store.ErrUnknown) {
		t.Errorf("sent again, it is answered %v, until %s; nobody keeps its etcd lease alive", a.Err, a.Record.Deadline)
	}
}

// TestTheHeartbeatsOfADeadEtcdLeaseAreNotWritten again and again when its
// leases lapse.
func TestTheHeartbeatsOfADeadEtcdLeaseAreNotWritten(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	client, w := wired(t, c)
	st := open(t, client, c.Prefix())
	mine := claimFor("alarm/dead", "ann", 500*time.Millisecond)
	must(t, st, mine, claimFor("alarm/too", "ann", 500*time.Millisecond))
	// Otherwise so much time has passed that all is over.
	if id := etcdLeaseOf(st, mine.TTL); id != 0 {
		if _, err := st.client.Revoke(t.Context(), id); err != nil && !leaseGone(err) {
			t.Fatal(err)
		}
	}
	calls := w.during(func() {
		testenv.Eventually(t, "the store has let go of it", func() error {
			st.mu.Lock()
			defer st.mu.Unlock()
			if len(st.held) > 0 {
				return fmt.Errorf("%d keys", len(st.held))
			}
			return nil
		})
		time.Sleep(500 * time.Millisecond) // nothing may happen meanwhile
	})
	if calls["Txn"] > 3 {
		t.Errorf("leases whose etcd lease is gone took %v", calls)
	}
}

// TestDeadlinesAreShownOnTheReadersClock, however far it is from the holder's.
func TestDeadlinesAreShownOnTheReadersClock(t *testing.T) {
	t.Parallel()
	for name, ahead := range map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour, "the same": 0} {
		c := testenv.Etcd(t)
		here, there := otherMachine(t, c, 0), otherMachine(t, c, ahead)
		mine := claim("shown/key", "ann")
		must(t, here, mine)
		must(t, here, then(tenure.Renew, mine))
		check := func(how string, rec tenure.Record) {
			if left := rec.Deadline.Sub(there.now()); left <= 0 || left > mine.TTL+mine.TTL/10 {
				t.Errorf("on a clock that is %s, %s shows that it ends in %s; its TTL is %s", name, how, left, mine.TTL)
			}
		}
		rec, err := there.Get(t.Context(), mine.Key)
		if err != nil {
			t.Fatal(err)
		}
		check("Get", rec)
		for rec, err := range there.List(t.Context(), "shown/") {
			if err != nil {
				t.Fatal(err)
			}
			check("List", rec)
		}
		var held *tenure.HeldError
		if a := resolve(t.Context(), there, claim(mine.Key, "bob")); !errors.As(a.Err, &held) || held.Remaining() <= 0 || held.Remaining() > mine.TTL+mine.TTL/10 {
			t.Errorf("on a clock that is %s, a refusal says %v", name, a.Err)
		}
	}
}

// TestALapsedLeaseIsForgotten by its store, which has told others that it is
// over.
func TestALapsedLeaseIsForgotten(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	here, there := open(t, dial(t, c), c.Prefix()), otherMachine(t, c, 0)
	var passed atomic.Int64
	here.domain = newIdentity()
	here.clock = func() time.Time { return time.Now().Add(time.Duration(passed.Load())) }
	left, kept := longClaim("forgotten/left", "ann"), longClaim("forgotten/kept", "ann")
	must(t, here, left, kept)
	longer := then(tenure.Renew, kept)
	longer.TTL = 3 * time.Hour
	must(t, here, longer)
	passed.Store(int64(2 * time.Hour))
	testenv.Eventually(t, "only the other key is remembered", func() error {
		here.writeLapsed(t.Context())
		here.mu.Lock()
		defer here.mu.Unlock()
		if len(here.held) != 1 || here.held[kept.Key] == nil {
			return fmt.Errorf("%d leases are", len(here.held))
		}
		return nil
	})
	must(t, there, longClaim(left.Key, "bob"))
	if a := resolve(t.Context(), there, longClaim(kept.Key, "bob")); !errors.Is(a.Err, tenure.ErrHeld) {
		t.Errorf("the lease that was renewed: %v, want held", a.Err)
	}
}

// TestALeaseThatIsInDoubtEndsAlone, also for stores that see it for the first
// time then: its own store does not know for certain that it carries the lease.
func TestALeaseThatIsInDoubtEndsAlone(t *testing.T) {
	t.Parallel()
	for name, doubt := range map[string]func(st *Store, w *wire, mine tenure.Request){
		"the acquire was not answered": func(st *Store, w *wire, mine tenure.Request) {
			w.lose(true)
			if a := one(t.Context(), st, mine); !errors.Is(a.Err, store.ErrUnknown) {
				t.Fatalf("an acquire without an answer: %v", a.Err)
			}
			w.lose(false)
		},
		"etcd has an earlier revision": func(st *Store, _ *wire, mine tenure.Request) {
			must(t, st, mine)
			st.sawRevision(math.MaxInt64, 1)
		},
	} {
		c := testenv.Etcd(t)
		client, w := wired(t, c)
		here, there := open(t, client, c.Prefix()), otherMachine(t, c, 0)
		var passed atomic.Int64
		here.domain = newIdentity()
		here.clock = func() time.Time { return time.Now().Add(time.Duration(passed.Load())) }
		mine := longClaim("doubt", "ann")
		doubt(here, w, mine)
		if a := resolve(t.Context(), there, longClaim(mine.Key, "bob")); !errors.Is(a.Err, tenure.ErrHeld) {
			t.Fatalf("%s: the lease is held, and another is answered %v", name, a.Err)
		}
		passed.Store(int64(2 * time.Hour))
		testenv.Eventually(t, "its store has let go of it", func() error {
			here.writeLapsed(t.Context())
			here.mu.Lock()
			defer here.mu.Unlock()
			if len(here.held) > 0 {
				return fmt.Errorf("%d keys are held", len(here.held))
			}
			return nil
		})
		if a := resolve(t.Context(), there, longClaim(mine.Key, "bob")); a.Err != nil {
			t.Errorf("%s: the lease has ended, and another is answered %v", name, a.Err)
		}
	}
}
