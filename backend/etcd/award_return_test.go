package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// keepWaiting waits for a key until the test ends.
func keepWaiting(t *testing.T, st *Store, key string) <-chan struct{} {
	t.Helper()
	wake, err := st.Watch(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return wake
}

// keepsBids is waitedBefore, and the store's bids stay in the queue though
// nobody waits.
func keepsBids(t *testing.T, st *Store, key string) *Store {
	t.Helper()
	st.idleInQueue = time.Hour
	return waitedBefore(t, st, key)
}

// holdByBid lets bidder get the key from holder by an award, and returns the
// bid.
func holdByBid(t *testing.T, holder, bidder *Store, next tenure.Request) *ownBid {
	t.Helper()
	mine := longClaim(next.Key, "holder")
	must(t, holder, mine)
	own := bids(t, bidder, next)
	keepWaiting(t, bidder, next.Key)
	seeBid(t, holder, next.Key)
	must(t, holder, then(tenure.Release, mine))
	testenv.Eventually(t, "it is told", func() error {
		bidder.mu.Lock()
		defer bidder.mu.Unlock()
		if !own.awarded {
			return errors.New("it is not")
		}
		return nil
	})
	return own
}

// TestAClaimedAwardIsNotReturned, by whatever request it was claimed.
func TestAClaimedAwardIsNotReturned(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	for name, ask := range map[string]func(tenure.Request) []tenure.Request{
		"asked for twice at once": func(q tenure.Request) []tenure.Request { return []tenure.Request{q, q} },
		"renewed":                 func(q tenure.Request) []tenure.Request { return []tenure.Request{then(tenure.Renew, q)} },
		"asked for and renewed":   func(q tenure.Request) []tenure.Request { return []tenure.Request{q, then(tenure.Renew, q)} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key := "award/told/" + name
			holder, bidder := keepsBids(t, open(t, dial(t, c), c.Prefix()), key), keepsBids(t, open(t, dial(t, c), c.Prefix()), key)
			next := longClaim(key, "bidder")
			own := holdByBid(t, holder, bidder, next)
			must(t, bidder, ask(next)...)
			bidder.returnAward(own) // as if it had not been claimed for a while
			bidder.mu.Lock()
			defer bidder.mu.Unlock()
			if own.returning {
				t.Error("it is given back, and its holder was told that it has it")
			}
		})
	}
}

// TestAWaiterInTheHoldersStoreIsNotForgotten: a release of an award deletes the
// store's queue entry. Another caller of the same store may wait in that entry
// by then.
func TestAWaiterInTheHoldersStoreIsNotForgotten(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	for name, lost := range map[string]bool{"released": false, "released without an answer": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key := "award/mate/" + name
			var deaf atomic.Bool // events come after the answer
			w := &wire{calls: map[string]int{}}
			client := dial(t, c, func(config *clientv3.Config) {
				config.DialOptions = append(config.DialOptions, grpc.WithChainUnaryInterceptor(w.unary), grpc.WithChainStreamInterceptor(mute(&deaf)))
			})
			holder, bidder := keepsBids(t, open(t, dial(t, c), c.Prefix()), key), keepsBids(t, open(t, client, c.Prefix()), key)
			first, mate := longClaim(key, "first"), longClaim(key, "mate")
			holdByBid(t, holder, bidder, first)
			must(t, bidder, first)
			if a := resolve(t.Context(), bidder, mate); !errors.Is(a.Err, tenure.ErrHeld) {
				t.Fatalf("the key is held: %v", a.Err)
			}
			testenv.Eventually(t, "it is in the queue", func() error {
				if in := queueEntry(t, bidder, key); in == nil || len(in) > 0 && in[0] == recordFormat {
					return fmt.Errorf("its queue entry says %q", in)
				}
				return nil
			})
			w.lose(lost)
			deaf.Store(!lost)
			one(t.Context(), bidder, then(tenure.Release, first))
			w.lose(false)
			must(t, holder, longClaim(key, "another"))
			testenv.Eventually(t, "it is in the queue again", func() error {
				if a := resolve(t.Context(), bidder, mate); !errors.Is(a.Err, tenure.ErrHeld) {
					t.Fatalf("the key is held: %v", a.Err)
				}
				if queueEntry(t, bidder, key) == nil {
					return errors.New("it is not")
				}
				return nil
			})
		})
	}
}

// TestAnAwardWithANewTTLIsHandedOnAsBefore: the holder changes the TTL. Its
// release still deletes its entry and passes the key to the next.
func TestAnAwardWithANewTTLIsHandedOnAsBefore(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	const key = "award/ttl"
	holder, bidder := keepsBids(t, open(t, dial(t, c), c.Prefix()), key), keepsBids(t, open(t, dial(t, c), c.Prefix()), key)
	next, after := longClaim(key, "bidder"), longClaim(key, "holder again")
	holdByBid(t, holder, bidder, next)
	must(t, bidder, next)
	bids(t, holder, after)
	seeBid(t, bidder, key)
	renewal := then(tenure.Renew, next)
	renewal.TTL = 2 * next.TTL
	must(t, bidder, renewal)
	must(t, bidder, then(tenure.Release, next))
	if in := queueEntry(t, bidder, key); in != nil {
		t.Errorf("it is still in the queue, with %q", in)
	}
	// after may have released the key by now.
	if rec, err := bidder.Get(t.Context(), key); err != nil || rec.Owner != after.Owner {
		t.Errorf("it is %s of %s, %v", rec.State, rec.Owner, err)
	}
}

// TestCloseWithdrawsBidsAndReturnsAwards, so that nothing of a closed store
// keeps keys from others.
func TestCloseWithdrawsBidsAndReturnsAwards(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	for name, granted := range map[string]bool{"granted": true, "waiting": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key := "award/close/" + name
			holder, bidder := waitedBefore(t, open(t, dial(t, c), c.Prefix()), key), open(t, dial(t, c), c.Prefix())
			bidder.queueTTL = time.Hour // its etcd lease carries something else, too
			keepsBids(t, bidder, key)
			must(t, bidder, longClaim(key+"/kept", "bidder"))
			next := longClaim(key, "bidder")
			if granted {
				holdByBid(t, holder, bidder, next)
			} else {
				must(t, holder, longClaim(key, "holder"))
				bids(t, bidder, next)
			}
			if err := bidder.Close(); err != nil {
				t.Fatal(err)
			}
			if granted {
				must(t, holder, longClaim(key, "holder again"))
			} else if in := queueEntry(t, bidder, key); in != nil {
				t.Errorf("its queue entry says %q", in)
			}
		})
	}
}

// TestCloseReturnsAnAwardNotHeardOfYet: the store has just left the queue, and
// is closed before it hears of the award in its entry.
func TestCloseReturnsAnAwardNotHeardOfYet(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	const key = "award/close/leaving"
	var deaf atomic.Bool
	left := make(chan struct{})
	client := dial(t, c, func(config *clientv3.Config) {
		config.DialOptions = append(config.DialOptions,
			grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				err := call(ctx, method, req, reply, conn, opts...)
				if strings.HasSuffix(method, "/DeleteRange") && deaf.Load() && err == nil {
					close(left)
					<-ctx.Done()
					return ctx.Err()
				}
				return err
			}),
			grpc.WithChainStreamInterceptor(mute(&deaf)))
	})
	holder, bidder := waitedBefore(t, open(t, dial(t, c), c.Prefix()), key), waitedBefore(t, open(t, client, c.Prefix()), key)
	// So that its etcd lease is not revoked.
	must(t, bidder, longClaim(key+"/kept", "bidder"))
	mine, next := longClaim(key, "holder"), longClaim(key, "bidder")
	must(t, holder, mine)
	bids(t, bidder, next)
	deaf.Store(true)
	seeBid(t, holder, key)
	must(t, holder, then(tenure.Release, mine))
	bidder.mu.Lock()
	topic := bidder.topics[key]
	bidder.mu.Unlock()
	go bidder.dequeue(topic)
	<-left
	if err := bidder.Close(); err != nil {
		t.Fatal(err)
	}
	must(t, holder, longClaim(key, "holder again"))
}

// TestAnAwardToALateBidIsReturned: the bid was given up in flight, others came
// after it, and nobody waits when it arrives and is granted.
func TestAnAwardToALateBidIsReturned(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	const key = "award/late"
	client, w := wired(t, c)
	holder, bidder := waitedBefore(t, open(t, dial(t, c), c.Prefix()), key), waitedBefore(t, open(t, client, c.Prefix()), key)
	bidder.idleInQueue = time.Millisecond
	mine, next := longClaim(key, "holder"), longClaim(key, "bidder")
	must(t, holder, mine)
	comesAndGoes := func() {
		t.Helper()
		if a := resolve(t.Context(), bidder, longClaim(key, "another")); !errors.Is(a.Err, tenure.ErrHeld) {
			t.Fatalf("the key is held: %v", a.Err)
		}
		testenv.Eventually(t, "it has left the queue", func() error {
			bidder.mu.Lock()
			defer bidder.mu.Unlock()
			if bidder.topics[key].queued {
				return errors.New("it is in it")
			}
			return nil
		})
	}
	comesAndGoes()
	w.delay(true)
	if a := one(t.Context(), bidder, next); !errors.Is(a.Err, store.ErrUnknown) {
		t.Fatalf("a request without an answer: %v", a.Err)
	}
	w.delay(false)
	comesAndGoes()
	w.deliver(t)
	if in := queueEntry(t, bidder, key); !isBid(in) {
		t.Fatalf("its queue entry says %q", in)
	}
	seeBid(t, holder, key)
	must(t, holder, then(tenure.Release, mine))
	if rec, err := holder.Get(t.Context(), key); err != nil || len(rec.History) < 2 || rec.History[1].Owner != "bidder" {
		t.Fatalf("it was not granted: %+v, %v", rec, err)
	}
	testenv.Eventually(t, "it is given back", func() error { return resolve(t.Context(), holder, longClaim(key, "holder again")).Err })
}

// TestAnAwardMissedByABrokenWatchIsReturned: nobody waits when the watch begins
// again.
func TestAnAwardMissedByABrokenWatchIsReturned(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	const key = "award/unheard"
	var cut atomic.Bool
	var tries atomic.Int64
	client := dial(t, c, func(config *clientv3.Config) {
		config.DialOptions = append(config.DialOptions,
			grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				if strings.HasSuffix(method, "/DeleteRange") && cut.Load() {
					tries.Add(1)
					return status.Error(codes.Unavailable, "cut off")
				}
				return call(ctx, method, req, reply, conn, opts...)
			}),
			grpc.WithChainStreamInterceptor(mute(&cut)))
	})
	holder, bidder := waitedBefore(t, open(t, dial(t, c), c.Prefix()), key), waitedBefore(t, open(t, client, c.Prefix()), key)
	bidder.idleInQueue = time.Millisecond
	mine := longClaim(key, "holder")
	must(t, holder, mine)
	cut.Store(true)
	bids(t, bidder, longClaim(key, "bidder"))
	seeBid(t, holder, key)
	must(t, holder, then(tenure.Release, mine))
	testenv.Eventually(t, "it has tried to leave the queue", func() error {
		if tries.Load() == 0 {
			return errors.New("it has not")
		}
		return nil
	})
	cut.Store(false)
	bidder.mu.Lock()
	topic := bidder.topics[key]
	bidder.mu.Unlock()
	bidder.watchBegan(topic)
	testenv.Eventually(t, "it is given back", func() error { return resolve(t.Context(), holder, longClaim(key, "holder again")).Err })
}

// mute keeps events from a client while cut is set.
func mute(cut *atomic.Bool) grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		s, err := open(ctx, desc, conn, method, opts...)
		return muted{s, cut}, err
	}
}

type muted struct {
	grpc.ClientStream
	cut *atomic.Bool
}

func (s muted) RecvMsg(msg any) error {
	err := s.ClientStream.RecvMsg(msg)
	if resp, is := msg.(*pb.WatchResponse); is && s.cut.Load() {
		resp.Events = nil
	}
	return err
}

// TestAnswersToBidsMayComeInAnyOrder: the entry has the newest bid, in whatever
// order the answers come.
func TestAnswersToBidsMayComeInAnyOrder(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	const key = "award/order"
	st := waitedBefore(t, open(t, dial(t, c), c.Prefix()), key)
	ours := make([]*ownBid, 3)
	st.mu.Lock()
	topic := st.topics[key]
	for i := range ours {
		q := longClaim(key, "ann")
		ours[i], _ = st.newBid(&q)
	}
	st.mu.Unlock()
	hasSlot := func(i int) bool {
		st.mu.Lock()
		defer st.mu.Unlock()
		return ours[i].page.members[ours[i].slot] != nil
	}
	const now = 1 << 40 // far above etcd's revisions
	st.noteJoined(&group{key: key, joins: topic, bid: ours[1]}, now+1)
	st.noteJoined(&group{key: key, joins: topic, bid: ours[0]}, now)
	if hasSlot(0) || !hasSlot(1) || topic.bid != ours[1] {
		t.Error("the later bid has lost its slot to the earlier one")
	}
	st.entryChanged(topic, &clientv3.Event{Type: clientv3.EventTypeDelete, Kv: kvAt(now + 3)})
	st.noteJoined(&group{key: key, joins: topic, bid: ours[2]}, now+2)
	if topic.queued || hasSlot(1) || hasSlot(2) {
		t.Error("it has left the queue, and still is in it")
	}
	st.sawRevision(now+4, 1) // etcd was restored
	st.noteJoined(&group{key: key, joins: topic}, 2)
	if !topic.queued {
		t.Error("it has come to a queue of an earlier state of etcd, and is not in it")
	}
}

// TestBidsFitIntoATransaction: all keys of a batch are waited for, and the
// requests are as large as possible.
func TestBidsFitIntoATransaction(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	holder, bidder := open(t, dial(t, c), c.Prefix()), open(t, dial(t, c), c.Prefix())
	first := longClaim("award/large", "ann")
	must(t, bidder, first)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var held, wanted []tenure.Request
	for n := range maxGroups {
		q := longClaim(fmt.Sprintf("award/large/%d", n), "ann")
		held = append(held, q)
		if _, err := bidder.Watch(ctx, q.Key); err != nil {
			t.Fatal(err)
		}
		q.Secret = tenure.NewSecret()
		for g := range tenure.MaxGuards {
			q.Guards = append(q.Guards, fmt.Sprintf("%0*d", tenure.MaxText, n*100+g))
		}
		wanted = append(wanted, q)
	}
	cancel()
	testenv.Eventually(t, "it has left all queues", func() error {
		bidder.mu.Lock()
		defer bidder.mu.Unlock()
		for key, t := range bidder.topics {
			if t.queued {
				return fmt.Errorf("it is in that of %s", key)
			}
		}
		return nil
	})
	must(t, holder, held...)
	testenv.Eventually(t, "all are refused", func() error {
		for _, a := range bidder.Apply(t.Context(), wanted) {
			if errors.Is(a.Err, rpctypes.ErrRequestTooLarge) {
				t.Fatal(a.Err)
			} else if !errors.Is(a.Err, tenure.ErrHeld) {
				return a.Err
			}
		}
		return nil
	})
}

func kvAt(revision int64) *mvccpb.KeyValue { return &mvccpb.KeyValue{ModRevision: revision} }
