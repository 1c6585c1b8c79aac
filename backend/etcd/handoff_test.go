package etcd

import (
	"context"
	"errors"
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
	const key, stores, terms = "handoff/crowd", 8, 120
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
