package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/storetest"
	"github.com/croft-dev/croft/tenure"
)

// scene is a store with two clients. A test can hold up the first client's next
// write while the second client acts.
type scene struct {
	t        *testing.T
	clock    *storetest.Clock
	slow     *gateway
	ann, bob *Store
}

// newScene makes a scene. strip names a condition that the first client's
// writes lose on the way, as if the client had been written without it.
func newScene(t *testing.T, strip ...string) *scene {
	server := testenv.S3(t)
	s := &scene{t: t, clock: storetest.NewClock(), slow: newGateway(t, server)}
	s.slow.strip = strip
	s.ann = open(t, server, s.slow.client(server), Options{now: s.clock.Now, SkipProbe: true})
	s.bob = open(t, server, dial(server), Options{now: s.clock.Now})
	s.announcing(dropping{within: time.Hour, lapse: 2 * time.Hour}) // so that a busy machine is never too late
	return s
}

// meanwhile lets something happen between the first client's decision and the
// arrival of its write.
func (s *scene) meanwhile(do func()) {
	var first sync.Once
	s.slow.set(func(r *http.Request) (int, bool) {
		if r.Method == http.MethodPut {
			first.Do(do)
		}
		return 0, false
	})
}

func (s *scene) must(a store.Answer) tenure.Record {
	s.t.Helper()
	if a.Err != nil {
		s.t.Fatal(a.Err)
	}
	return a.Record
}

// The three races of a lease on object storage. Each returns an error if
// something went wrong.
var races = map[string]struct {
	without string // the race goes wrong without this condition
	run     func(s *scene) error
}{
	"a stale release after a reclaim": {"If-Match", func(s *scene) error {
		ctx, mine, next := s.t.Context(), claim("race/k", "ann"), claim("race/k", "bob")
		s.must(one(ctx, s.ann, mine))
		s.clock.Advance(mine.TTL - time.Second) // ann still holds it when she decides to release it
		s.meanwhile(func() {
			s.clock.Advance(2 * time.Second)
			s.must(one(ctx, s.bob, next))
		})
		a := one(ctx, s.ann, then(tenure.Release, mine))
		var lost *tenure.NotOwnedError
		if !errors.As(a.Err, &lost) || lost.Why != tenure.WhySuperseded {
			return fmt.Errorf("the stale release: %w", a.Err)
		}
		return owned(ctx, s.bob, next)
	}},
	"two reclaim one lease": {"If-Match", func(s *scene) error {
		ctx, dead, mine, next := s.t.Context(), claim("race/k", "cleo"), claim("race/k", "ann"), claim("race/k", "bob")
		s.must(one(ctx, s.bob, dead))
		s.clock.Advance(dead.TTL)
		s.meanwhile(func() { s.must(one(ctx, s.bob, next)) })
		if a := one(ctx, s.ann, mine); !errors.Is(a.Err, tenure.ErrHeld) {
			return fmt.Errorf("the second reclaim: %w", a.Err)
		}
		return owned(ctx, s.bob, next)
	}},
	"a create after a delete": {"If-None-Match", func(s *scene) error {
		ctx, old, mine, next := s.t.Context(), claim("race/k", "cleo"), claim("race/k", "ann"), claim("race/k", "bob")
		s.must(one(ctx, s.bob, old))
		s.must(one(ctx, s.bob, then(tenure.Release, old)))
		s.clock.Advance(2 * store.DefaultRetention)
		if n, err := s.bob.Sweep(ctx); n != 1 || err != nil {
			s.t.Fatalf("%d dropped, %v", n, err)
		}
		s.meanwhile(func() { s.must(one(ctx, s.bob, next)) })
		if a := one(ctx, s.ann, mine); !errors.Is(a.Err, tenure.ErrHeld) {
			return fmt.Errorf("the second create: %w", a.Err)
		}
		return owned(ctx, s.bob, next)
	}},
}

// owned returns nil if the grant holds the key and can renew it.
func owned(ctx context.Context, st store.Store, mine tenure.Request) error {
	rec, err := st.Get(ctx, mine.Key)
	if err != nil || rec.Grant != mine.Secret.Grant() {
		return fmt.Errorf("the key is %s of %s, %w", rec.State, rec.Owner, err)
	}
	return one(ctx, st, then(tenure.Renew, mine)).Err
}

// TestTheRacesOfALeaseInABucket: the conditions close all races. A client that
// leaves one out fails.
func TestTheRacesOfALeaseInABucket(t *testing.T) {
	t.Parallel()
	for name, race := range races {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := race.run(newScene(t)); err != nil {
				t.Errorf("with the condition: %v", err)
			}
			if err := race.run(newScene(t, race.without)); err == nil {
				t.Errorf("without %s nothing goes wrong: the test shows nothing", race.without)
			}
		})
	}
}

// TestAHundredWorkersReclaimOneExpiredLease: one gets it, and all others learn
// the holder.
func TestAHundredWorkersReclaimOneExpiredLease(t *testing.T) {
	t.Parallel()
	server := testenv.S3(t)
	client, clock, ctx := dial(server), storetest.NewClock(), t.Context()
	var handles []*Store
	for range 10 {
		handles = append(handles, open(t, server, client, Options{now: clock.Now}))
	}
	dead := claim("race/hundred", "dead")
	if a := one(ctx, handles[0], dead); a.Err != nil {
		t.Fatal(a.Err)
	}
	clock.Advance(dead.TTL)
	answers, requests := make([]store.Answer, 100), make([]tenure.Request, 100)
	start := make(chan struct{})
	var all sync.WaitGroup
	for i := range answers {
		requests[i] = claim(dead.Key, fmt.Sprintf("worker %d", i))
		all.Go(func() {
			<-start
			answers[i] = one(ctx, handles[i%len(handles)], requests[i])
		})
	}
	close(start)
	all.Wait()
	var won tenure.Record
	for _, a := range answers {
		if a.Err == nil && !won.IsZero() {
			t.Fatalf("both %s and %s were granted", won.Owner, a.Record.Owner)
		}
		if a.Err == nil {
			won = a.Record
		}
	}
	for _, a := range answers {
		var held *tenure.HeldError
		if a.Err != nil && (!errors.As(a.Err, &held) || held.Record.Token != won.Token) {
			t.Errorf("a loser was told: %v", a.Err)
		}
	}
	if won.Cause != tenure.Expired || won.Terms != 2 {
		t.Errorf("the winner's term began by %q as number %d", won.Cause, won.Terms)
	}
}

// held acquires a key for two seconds, and renews it if asked to. It returns
// the request, and when the last one was sent. On a busy machine a renewal may
// come too late. Then held begins again with another key.
func held(t *testing.T, st *Store, name string, renewed bool) (tenure.Request, time.Time) {
	t.Helper()
	for try := 0; ; try++ {
		mine := claim(fmt.Sprintf("%s/%d", name, try), "ann")
		mine.TTL = 2 * time.Second
		sent := time.Now()
		if a := one(t.Context(), st, mine); a.Err != nil {
			t.Fatal(a.Err)
		}
		if !renewed {
			return mine, sent
		}
		sent = time.Now()
		a := one(t.Context(), st, then(tenure.Renew, mine))
		if a.Err == nil {
			return mine, sent
		}
		if !errors.Is(a.Err, tenure.ErrNotOwned) {
			t.Fatal(a.Err)
		}
	}
}

// TestALeaseLastsAsLongAsItsHolderBelieves: whatever fraction of a second it
// was granted in. And a process that has just started takes a dead lease at its
// first try.
func TestALeaseLastsAsLongAsItsHolderBelieves(t *testing.T) {
	t.Parallel()
	server := testenv.S3(t)
	client, ctx := dial(server), t.Context()
	for i := range 5 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			time.Sleep(time.Duration(i) * 190 * time.Millisecond) // another fraction of the second
			holder := open(t, server, client, Options{})
			// Every second lease is renewed from memory, on a computed clock.
			mine, sent := held(t, holder, fmt.Sprintf("clock/%d", i), i%2 == 0)
			other := open(t, server, client, Options{})
			// A grant that is too early would also come just before the end.
			time.Sleep(time.Until(sent.Add(mine.TTL - 150*time.Millisecond)))
			for {
				a := one(ctx, other, claim(mine.Key, "bob"))
				if a.Err == nil {
					break
				}
				var held *tenure.HeldError
				if !errors.As(a.Err, &held) {
					t.Fatal(a.Err)
				}
				if time.Since(sent) < mine.TTL {
					time.Sleep(10 * time.Millisecond)
				} else {
					time.Sleep(100 * time.Millisecond) // from now on the grant only has to come
				}
			}
			if after := time.Since(sent); after < mine.TTL {
				t.Errorf("granted to another after %s; the holder counted on %s", after, mine.TTL)
			}
			dead := claim(mine.Key+"/dead", "ann")
			dead.TTL = tenure.MinTTL
			a := one(ctx, holder, dead)
			if a.Err != nil {
				t.Fatal(a.Err)
			}
			testenv.Eventually(t, "its deadline has passed", func() error {
				if now, err := holder.Now(ctx); err != nil || now.Before(a.Record.Deadline) {
					return fmt.Errorf("it is %s, %w", now, err)
				}
				return nil
			})
			if a := one(ctx, open(t, server, client, Options{}), claim(dead.Key, "bob")); a.Err != nil {
				t.Errorf("a dead lease, at the first try: %v", a.Err)
			}
		})
	}
}
