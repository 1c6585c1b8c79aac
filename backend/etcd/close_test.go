package etcd

import (
	"context"
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// etcdLeaseOf returns the etcd lease that carries leases of a TTL.
func etcdLeaseOf(st *Store, ttl time.Duration) clientv3.LeaseID {
	st.mu.Lock()
	defer st.mu.Unlock()
	if a := st.etcdLeases[leaseSeconds(ttl)]; a != nil {
		return a.id
	}
	return 0
}

// TestCloseTakesNoLeaseFromAnybody: Close revokes an etcd lease only if it
// carries nothing, and no call under way can change that.
func TestCloseTakesNoLeaseFromAnybody(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	other := open(t, dial(t, c), c.Prefix())
	for name, test := range map[string]struct {
		kept bool
		use  func(st *Store, w *wire, mine tenure.Request)
	}{
		"held": {true, func(*Store, *wire, tenure.Request) {}},
		"held, and nobody knows": {true, func(st *Store, w *wire, mine tenure.Request) {
			must(t, st, then(tenure.Release, mine))
			w.lose(true)
			if a := one(t.Context(), st, claim(mine.Key, "ann")); !errors.Is(a.Err, store.ErrUnknown) {
				t.Errorf("a grant without an answer: %v", a.Err)
			}
			w.lose(false)
		}},
		"released": {false, func(st *Store, _ *wire, mine tenure.Request) { must(t, st, then(tenure.Release, mine)) }},
	} {
		client, w := wired(t, c)
		st := open(t, client, c.Prefix())
		mine := claim("close/"+name, "ann")
		must(t, st, mine)
		id := etcdLeaseOf(st, mine.TTL)
		test.use(st, w, mine)
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
		left, err := other.client.TimeToLive(t.Context(), id)
		if err != nil || left.TTL > 0 != test.kept {
			t.Errorf("%s: the etcd lease lasts %d s after Close, %v", name, left.TTL, err)
		}
		if a := resolve(t.Context(), other, claim(mine.Key, "bob")); errors.Is(a.Err, tenure.ErrHeld) != test.kept {
			t.Errorf("%s: another's acquire after Close: %v", name, a.Err)
		}
	}
}

// TestAGrantDuringCloseIsKept: it was in flight, and is confirmed after the
// store was closed.
func TestAGrantDuringCloseIsKept(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	other := open(t, dial(t, c), c.Prefix())
	arrived, on := make(chan struct{}), make(chan struct{})
	var stop bool // set before the call that it stops
	client := dial(t, c, func(config *clientv3.Config) {
		config.DialOptions = append(config.DialOptions, grpc.WithChainUnaryInterceptor(
			func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				if _, is := req.(*pb.TxnRequest); is && stop {
					close(arrived)
					<-on
				}
				return call(ctx, method, req, reply, conn, opts...)
			}))
	})
	st := New(client, &Options{Prefix: c.Prefix(), SweepEvery: -1})
	first := claim("close/first", "ann")
	must(t, st, first)
	must(t, st, then(tenure.Release, first))
	stop = true
	mine := claim("close/overtaken", "ann")
	answered := make(chan store.Answer, 1)
	go func() { answered <- one(t.Context(), st, mine) }()
	<-arrived
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	stop = false
	close(on)
	if a := <-answered; a.Err != nil && !errors.Is(a.Err, store.ErrUnknown) {
		t.Fatalf("the grant: %v", a.Err)
	} else if b := resolve(t.Context(), other, claim(mine.Key, "bob")); a.Err == nil && !errors.Is(b.Err, tenure.ErrHeld) {
		t.Errorf("it was granted, and so it was to another: %v", b.Err)
	}
}
