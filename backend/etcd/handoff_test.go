package etcd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// TestClientsThatComeAndGoLeaveNoKeyHeld: clients lose patience, are called
// away, end and begin again. None has to wait for the lease of a client that
// has gone. One such wait is allowed, if the machine stalls just when that
// client ends.
func TestClientsThatComeAndGoLeaveNoKeyHeld(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	const key, stores, terms = "award/crowd", 8, 120
	ctx, cancel := context.WithTimeout(t.Context(), 3*testenv.Patience)
	defer cancel()
	var (
		mu      sync.Mutex
		holder  *croft.Lease
		granted int
		left    int // by clients that have gone
		all     sync.WaitGroup
	)
	term := func(cr *croft.Client) {
		o, asking, stop := &croft.LeaseOptions{TTL: 15 * time.Second, WaitFor: croft.Forever}, ctx, context.CancelFunc(func() {})
		switch rand.N(6) {
		case 0:
			o.WaitFor = rand.N(50 * time.Millisecond)
		case 1:
			asking, stop = context.WithTimeout(ctx, rand.N(50*time.Millisecond))
		}
		l, err := cr.Acquire(asking, key, o)
		stop()
		if err != nil {
			return
		}
		mu.Lock()
		if holder != nil && holder.Err() == nil {
			t.Errorf("token %d was granted while the holder of %d has %s left", l.Token(), holder.Token(), holder.Remaining())
		}
		holder = l
		if l.Record().Cause == tenure.Expired {
			left++
		}
		if granted++; granted >= terms {
			cancel()
		}
		mu.Unlock()
		time.Sleep(rand.N(3 * time.Millisecond)) // the work
		mu.Lock()
		holder = nil
		mu.Unlock()
		for errors.Is(l.Release(t.Context()), store.ErrUnknown) {
		}
	}
	for n := range stores {
		client := dial(t, c)
		all.Go(func() {
			for ctx.Err() == nil {
				st := New(client, &Options{Prefix: c.Prefix(), SweepEvery: 50})
				if n%2 == 0 { // on another machine
					ahead := rand.N(time.Hour) - time.Hour/2
					st.domain, st.clock = newIdentity(), func() time.Time { return time.Now().Add(ahead) }
				}
				var mates sync.WaitGroup
				for range 1 + n%2 {
					mates.Go(func() {
						cr := croft.New(st, nil)
						for range 5 + rand.N(20) {
							if ctx.Err() == nil {
								term(cr)
							}
						}
						cr.Close()
					})
				}
				mates.Wait()
				st.Close()
			}
		})
	}
	all.Wait()
	if granted < terms || left > 1 {
		t.Errorf("%d terms, and %d times the key was left to others by time alone", granted, left)
	}
}

// TestABatchHandsOffAllItsKeys, in each form. A store that is late on a busy
// machine hands nothing off. Then the test begins anew.
func TestABatchHandsOffAllItsKeys(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	for name, form := range map[string]batchForm{
		"all or none": {30, 0}, "too many for that": {50, 0}, "each by itself": {maxGroups, nestedFor},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const quick = time.Second // a slower try may have been late
			for tries, failed := 1, 0; ; tries++ {
				began := time.Now()
				err := handOffBatch(t, c, fmt.Sprintf("%s%s/%d/", c.Prefix(), name, tries), form)
				if err == nil {
					return
				}
				if time.Since(began) < quick {
					failed++
				}
				if failed == 10 || tries == 100 {
					t.Fatalf("not all keys were handed off in %d tries, of which %d were quick: %v", tries, failed, err)
				}
			}
		})
	}
}

// batchForm is how many keys are handed off, and how the batch is sent.
type batchForm struct {
	keys int
	wary int64
}

// handOffBatch lets one store release keys in one batch, for which another
// store has bid. It returns an error if a key was not handed off.
func handOffBatch(t *testing.T, c *testenv.EtcdCluster, prefix string, form batchForm) error {
	t.Helper()
	holder, bidder := open(t, dial(t, c), prefix), open(t, dial(t, c), prefix)
	holder.maxBidAge, bidder.idleInQueue, bidder.linger = time.Hour, time.Hour, time.Hour
	// Makes the etcd lease that bids need.
	must(t, bidder, longClaim("award/first", "bidder"))
	var held, wanted, ends []tenure.Request
	for n := range form.keys {
		held = append(held, longClaim(fmt.Sprintf("award/batch/%d", n), "holder"))
		wanted = append(wanted, longClaim(held[n].Key, "bidder"))
		ends = append(ends, then(tenure.Release, held[n]))
	}
	must(t, holder, held...)
	ctx, cancel := context.WithCancel(t.Context())
	for _, q := range wanted {
		if _, err := bidder.Watch(ctx, q.Key); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	testenv.Eventually(t, "it has left all queues", func() error {
		bidder.mu.Lock()
		defer bidder.mu.Unlock()
		for key, t := range bidder.topics {
			if t.queued || len(t.waiters) > 0 {
				return fmt.Errorf("it is in that of %s", key)
			}
		}
		return nil
	})
	testenv.Eventually(t, "it has left all its bids", func() error {
		for _, a := range bidder.Apply(t.Context(), wanted) {
			if !errors.Is(a.Err, tenure.ErrHeld) {
				return a.Err
			}
		}
		return nil
	})
	for _, q := range held {
		v := holder.cached(q.Key)
		holder.mu.Lock()
		_, m := holder.ownMember(v.stored)
		holder.mu.Unlock()
		holder.readQueue(t.Context(), q.Key, m)
	}
	holder.nestedLeft.Store(form.wary)
	must(t, holder, ends...)
	for _, q := range wanted {
		rec, err := holder.Get(t.Context(), q.Key)
		if err != nil {
			t.Fatal(err)
		}
		if rec.History[len(rec.History)-1].Cause != tenure.Released {
			return fmt.Errorf("%s was not: %+v", q.Key, rec)
		}
	}
	return nil
}
