package etcd

import (
	"context"
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/storetest"
	"github.com/croft-dev/croft/tenure"
)

// dial makes a client of a cluster. It is closed when the test ends.
func dial(tb testing.TB, c *testenv.EtcdCluster, change ...func(*clientv3.Config)) *clientv3.Client {
	tb.Helper()
	config := clientv3.Config{Endpoints: c.Addrs(), Logger: zap.NewNop()}
	for _, f := range change {
		f(&config)
	}
	client, err := clientv3.New(config)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { client.Close() })
	return client
}

// wipe removes all keys with a prefix.
func wipe(tb testing.TB, client *clientv3.Client, prefix string) {
	tb.Helper()
	// Members may be killed meanwhile.
	testenv.Eventually(tb, "all is deleted", func() error {
		_, err := client.Delete(context.Background(), prefix, clientv3.WithPrefix())
		return err
	})
}

// harness makes empty stores on a cluster. A nil clock means the real one.
func harness(tb testing.TB, c *testenv.EtcdCluster, clock *storetest.Clock, change ...func(*clientv3.Config)) storetest.Harness {
	client := dial(tb, c, change...)
	name := newIdentity()
	h := storetest.Harness{
		Open: func(_ testing.TB, o storetest.Options) store.Store {
			s := New(client, &Options{Prefix: c.Prefix(), Retention: o.Retention})
			// The suite needs an answer, even from a slow machine.
			s.timeout = testenv.Patience
			if clock == nil {
				return patientStore{s}
			}
			s.clock, s.domain, s.extraSeconds = clock.Now, name, int64(testenv.Patience/time.Second)
			return s
		},
		Wipe: func(tb testing.TB) { wipe(tb, client, c.Prefix()) },
		Slow: true,
	}
	if clock != nil {
		clock.Advance(time.Since(clock.Now()))
		h.Advance = clock.Advance
	}
	return h
}

// patientStore repeats a request if its outcome is unknown and the call was
// slow. The machine stood still then, and the etcd lease may have expired on
// the way. An unknown outcome of a quick call is passed on to the suite.
type patientStore struct{ *Store }

func (s patientStore) Apply(ctx context.Context, requests []tenure.Request) []store.Answer {
	began := time.Now()
	answers := s.Store.Apply(ctx, requests)
	for slow := time.Since(began); slow > slack/4 && ctx.Err() == nil; slow = time.Since(began) {
		began = time.Now()
		var open []int
		var again []tenure.Request
		for i, a := range answers {
			if errors.Is(a.Err, store.ErrUnknown) && !errors.Is(a.Err, ErrClosed) {
				open, again = append(open, i), append(again, requests[i])
			}
		}
		if len(open) == 0 {
			break
		}
		for i, a := range s.Store.Apply(ctx, again) {
			answers[open[i]] = a
		}
	}
	return answers
}

// TestConformance holds the store to every law of a lease store, at the very
// edges of deadlines.
func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(tb testing.TB) storetest.Harness { return harness(tb, testenv.Etcd(tb), storetest.NewClock()) })
}

// TestConformanceOnARealClock runs the parts of the suite in which time passes.
func TestConformanceOnARealClock(t *testing.T) {
	t.Parallel()
	storetest.RunTimed(t, func(tb testing.TB) storetest.Harness { return harness(tb, testenv.Etcd(tb), nil) })
}
