package etcd

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/tenure"
)

func claim(key, owner string) tenure.Request {
	return tenure.Request{Verb: tenure.Acquire, Key: key, Secret: tenure.NewSecret(), Owner: owner, TTL: time.Minute}
}

// then makes another request of the same grant.
func then(verb tenure.Verb, mine tenure.Request) tenure.Request {
	return tenure.Request{Verb: verb, Key: mine.Key, Secret: mine.Secret}
}

// floor is the simplest lock: put a key if it does not exist, on an existing
// etcd lease, and delete it if it is still the same. Two transactions.
func floor(ctx context.Context, client *clientv3.Client, key string, lease clientv3.LeaseID) error {
	resp, err := client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).Then(clientv3.OpPut(key, "owner", clientv3.WithLease(lease))).Commit()
	if err == nil && !resp.Succeeded {
		err = fmt.Errorf("%s is taken", key)
	}
	if err != nil {
		return err
	}
	_, err = client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", resp.Header.Revision)).Then(clientv3.OpDelete(key)).Commit()
	return err
}

// BenchmarkLone measures an acquire and a release by one caller, in turns with
// floor.
func BenchmarkLone(b *testing.B) {
	c := testenv.EtcdAlone(b)
	client := dial(b, c)
	st := New(client, nil)
	defer st.Close()
	cr := croft.New(st, nil)
	defer cr.Close()
	ctx := b.Context()
	lease, err := client.Grant(ctx, 600)
	if err != nil {
		b.Fatal(err)
	}
	session, err := concurrency.NewSession(client)
	if err != nil {
		b.Fatal(err)
	}
	contenders := []struct {
		name string
		run  func() error
	}{
		{"floor", func() error { return floor(ctx, client, "floor/lone", lease.ID) }},
		{"store", func() error {
			mine := claim("bench/lone", "ann")
			if a := st.Apply(ctx, []tenure.Request{mine})[0]; a.Err != nil {
				return a.Err
			}
			return st.Apply(ctx, []tenure.Request{then(tenure.Release, mine)})[0].Err
		}},
		{"croft", func() error {
			l, err := cr.Acquire(ctx, "bench/client", nil)
			if err != nil {
				return err
			}
			return l.Release(ctx)
		}},
		{"mutex", func() error {
			m := concurrency.NewMutex(session, "mutex/lone")
			if err := m.Lock(ctx); err != nil {
				return err
			}
			return m.Unlock(ctx)
		}},
	}
	took := make([][]time.Duration, len(contenders))
	for b.Loop() {
		for i, c := range contenders {
			began := time.Now()
			if err := c.run(); err != nil {
				b.Fatal(c.name, err)
			}
			took[i] = append(took[i], time.Since(began))
		}
	}
	for i, c := range contenders {
		b.ReportMetric(float64(median(took[i]).Microseconds()), "µs-"+c.name)
	}
}

// BenchmarkMany measures 64 goroutines that acquire and release keys of their
// own.
func BenchmarkMany(b *testing.B) {
	c := testenv.EtcdAlone(b)
	client := dial(b, c)
	st := New(client, nil)
	defer st.Close()
	cr := croft.New(st, nil)
	defer cr.Close()
	ctx := b.Context()
	lease, err := client.Grant(ctx, 600)
	if err != nil {
		b.Fatal(err)
	}
	for name, run := range map[string]func(n int64) error{
		"floor": func(n int64) error { return floor(ctx, client, fmt.Sprintf("floor/%d", n%64), lease.ID) },
		"croft": func(n int64) error {
			l, err := cr.Acquire(ctx, fmt.Sprintf("bench/%d", n%64), nil)
			if err != nil {
				return err
			}
			return l.Release(ctx)
		},
	} {
		b.Run(name, func(b *testing.B) {
			var next atomic.Int64
			b.SetParallelism(32) // times two cores
			b.RunParallel(func(p *testing.PB) {
				mine := next.Add(1)
				for p.Next() {
					if err := run(mine); err != nil {
						b.Error(err)
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "cycles/s")
		})
	}
}

// median is robust against rounds in which the machine did something else.
func median(took []time.Duration) time.Duration {
	slices.Sort(took)
	return took[len(took)/2]
}

// BenchmarkHandOff measures the time from a release to the next grant while
// others wait, each with a client of its own. Croft uses the store's queue,
// etcd its mutex.
func BenchmarkHandOff(b *testing.B) {
	c := testenv.EtcdAlone(b)
	for _, workers := range []int{2, 16} {
		b.Run(fmt.Sprintf("croft, %d", workers), func(b *testing.B) {
			handOff(b, workers, func(n int) (lock, unlock func(context.Context) error) {
				st := New(dial(b, c), &Options{Prefix: fmt.Sprintf("handoff%d/", workers)})
				cr := croft.New(st, nil)
				b.Cleanup(func() { cr.Close(); st.Close() })
				var l *croft.Lease
				return func(ctx context.Context) (err error) {
					l, err = cr.Acquire(ctx, "bench/handoff", &croft.LeaseOptions{WaitFor: croft.Forever})
					return err
				}, func(ctx context.Context) error { return l.Release(ctx) }
			})
		})
		b.Run(fmt.Sprintf("mutex, %d", workers), func(b *testing.B) {
			handOff(b, workers, func(int) (lock, unlock func(context.Context) error) {
				session, err := concurrency.NewSession(dial(b, c))
				if err != nil {
					b.Fatal(err)
				}
				m := concurrency.NewMutex(session, fmt.Sprintf("mutex/handoff%d", workers))
				return m.Lock, m.Unlock
			})
		})
	}
}

func handOff(b *testing.B, workers int, worker func(n int) (lock, unlock func(context.Context) error)) {
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var mu sync.Mutex
	var freed time.Time
	var took []time.Duration
	var all sync.WaitGroup
	locks, unlocks := make([]func(context.Context) error, workers), make([]func(context.Context) error, workers)
	for n := range workers {
		locks[n], unlocks[n] = worker(n)
	}
	done := 0
	b.ResetTimer()
	for n := range workers {
		all.Go(func() {
			for {
				if err := locks[n](ctx); err != nil {
					return
				}
				mu.Lock()
				if !freed.IsZero() {
					took = append(took, time.Since(freed))
				}
				done++
				last := done >= b.N+workers
				mu.Unlock()
				time.Sleep(2 * time.Millisecond) // the work; meanwhile all others wait
				mu.Lock()
				freed = time.Now()
				mu.Unlock()
				// Otherwise the next run waits until the lease has lapsed.
				if err := unlocks[n](context.WithoutCancel(ctx)); err != nil {
					b.Error(err)
				}
				if last {
					cancel()
					return
				}
			}
		})
	}
	all.Wait()
	b.ReportMetric(float64(median(took).Microseconds())/1000, "ms-handoff")
}
