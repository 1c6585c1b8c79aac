package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/croft-dev/croft/backend/etcd"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
)

// etcd returns the etcd of this run: one member, with its default durability.
func (b *bench) etcd(ctx context.Context) (*engine, error) {
	if b.etcdEngine != nil {
		return b.etcdEngine, nil
	}
	var cluster *testenv.EtcdCluster
	err := b.try(func() { cluster = testenv.EtcdAlone(b.tb, "unsafe-no-fsync: false") })
	if err != nil {
		return nil, err
	}
	e := &engine{name: "etcd", hosts: cluster.Addrs(), cpu: func() (sum time.Duration) {
		for _, m := range cluster.Members {
			sum += processTime(m.Pid())
		}
		return sum
	}}
	client, err := etcdClient(e, &meter{})
	if err != nil {
		return nil, err
	}
	defer client.Close()
	status, err := client.Status(ctx, e.hosts[0])
	if err != nil {
		return nil, err
	}
	e.setup = fmt.Sprintf("etcd %s, one member, which waits for its disk", status.Version)
	b.etcdEngine = e
	return e, nil
}

// etcdClient returns a metered client. It counts calls, and messages on
// streams.
func etcdClient(e *engine, m *meter) (*clientv3.Client, error) {
	count := func() {
		m.commands.Add(1)
		m.trips.Add(1)
	}
	return clientv3.New(clientv3.Config{
		Endpoints: e.hosts, DialTimeout: 10 * time.Second, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{
			grpc.WithChainUnaryInterceptor(func(
				ctx context.Context, method string, req, reply any, conn *grpc.ClientConn,
				invoke grpc.UnaryInvoker, o ...grpc.CallOption,
			) error {
				count()
				return invoke(ctx, method, req, reply, conn, o...)
			}),
			grpc.WithChainStreamInterceptor(func(
				ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string,
				open grpc.Streamer, o ...grpc.CallOption,
			) (grpc.ClientStream, error) {
				s, err := open(ctx, desc, conn, method, o...)
				return &meteredStream{s, count}, err
			}),
		},
	})
}

type meteredStream struct {
	grpc.ClientStream
	count func()
}

func (s *meteredStream) SendMsg(msg any) error {
	s.count()
	return s.ClientStream.SendMsg(msg)
}

// onEtcd makes a workload of a contest on etcd.
func onEtcd(
	rivals func(e *engine) []rival,
	run func(ctx context.Context, c *contest, t *table) error,
) func(ctx context.Context, b *bench) error {
	return func(ctx context.Context, b *bench) error {
		e, err := b.etcd(ctx)
		if err != nil {
			return err
		}
		return b.contest(ctx, e, rivals(e), run)
	}
}

func etcdRivals(e *engine) []rival {
	return []rival{floorEtcd(e), croftEtcd(e, false), mutexRival(e, false), mutexRival(e, true)}
}

func etcdWaiters(e *engine) []rival {
	return []rival{croftEtcd(e, false), croftEtcd(e, true), sessionsRival(e)}
}

func etcdHolders(e *engine) []rival {
	return []rival{croftEtcd(e, false), mutexRival(e, false)}
}

// croftEtcd is Croft with one client for all workers. With apart it has one for
// each, as if each were a process.
func croftEtcd(e *engine, apart bool) rival {
	name := croftName
	if apart {
		name += ", a client for each waiter"
	}
	return rival{name, func(_ context.Context, workers int) (*opened, error) {
		m := &meter{}
		n := 1
		if apart {
			n = workers
		}
		var clients []*clientv3.Client
		open := func(context.Context) (store.Store, error) {
			client, err := etcdClient(e, m)
			if err != nil {
				return nil, err
			}
			clients = append(clients, client)
			return etcd.New(client, nil), nil
		}
		return openCroft(m, n, open, closeAll(&clients))
	}}
}

func closeAll(clients *[]*clientv3.Client) func() {
	return func() {
		for _, c := range *clients {
			_ = c.Close()
		}
	}
}

// floorEtcd is two handwritten transactions under an existing lease. A lock
// cannot do with fewer.
func floorEtcd(e *engine) rival {
	return rival{floorName, func(ctx context.Context, _ int) (*opened, error) {
		m := &meter{}
		client, err := etcdClient(e, m)
		if err != nil {
			return nil, err
		}
		lease, err := client.Grant(ctx, 3600)
		if err != nil {
			return nil, err
		}
		t := func(ctx context.Context, key string) (func(context.Context) error, error) {
			key = "floor/" + key
			secret := rand.Text()
			got, err := client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
				Then(clientv3.OpPut(key, secret, clientv3.WithLease(lease.ID))).Else(clientv3.OpGet(key)).Commit()
			if err != nil {
				return nil, err
			}
			if !got.Succeeded {
				return nil, fmt.Errorf("%s is held", key)
			}
			return func(ctx context.Context) error {
				_, err := client.Txn(ctx).If(
					clientv3.Compare(clientv3.Value(key), "=", secret),
				).Then(clientv3.OpDelete(key)).Commit()
				return err
			}, nil
		}
		return &opened{takes: []take{t}, meter: m, close: func() { _ = client.Close() }}, nil
	}}
}

// mutexRival is etcd's own lock. It has one session for all workers, which
// tells keys apart but not its users. Or it has a session for each lock, as its
// documentation shows.
func mutexRival(e *engine, each bool) rival {
	name := "concurrency.Mutex, one session"
	if each {
		name = "concurrency.Mutex, a session for each lock"
	}
	return rival{name, func(context.Context, int) (*opened, error) {
		m := &meter{}
		client, err := etcdClient(e, m)
		if err != nil {
			return nil, err
		}
		session := func() (*concurrency.Session, error) {
			return concurrency.NewSession(client, concurrency.WithTTL(int(ttl.Seconds())))
		}
		shared, err := session()
		if err != nil {
			return nil, err
		}
		lock := func(ctx context.Context, s *concurrency.Session, key string) (*concurrency.Mutex, error) {
			mu := concurrency.NewMutex(s, "mutex/"+key)
			err := mu.Lock(ctx)
			return mu, err
		}
		t := func(ctx context.Context, key string) (func(context.Context) error, error) {
			s := shared
			if each {
				if s, err = session(); err != nil {
					return nil, err
				}
			}
			mu, err := lock(ctx, s, key)
			if err != nil {
				return nil, err
			}
			return func(ctx context.Context) error {
				err := mu.Unlock(ctx)
				if each && err == nil {
					err = s.Close()
				}
				return err
			}, nil
		}
		hold := func(ctx context.Context, key string) (func() error, error) {
			if _, err := lock(ctx, shared, key); err != nil {
				return nil, err
			}
			return func() error {
				select {
				case <-shared.Done():
					return fmt.Errorf("the session has ended")
				default:
					return nil
				}
			}, nil
		}
		return &opened{takes: []take{t}, hold: hold, meter: m, close: func() { _ = client.Close() }}, nil
	}}
}

// sessionsRival is etcd's own lock with a session and a client for each waiter.
// The lock takes all users of a session for one.
func sessionsRival(e *engine) rival {
	return rival{"concurrency.Mutex, a session for each waiter", func(_ context.Context, workers int) (*opened, error) {
		o := &opened{meter: &meter{}}
		var clients []*clientv3.Client
		o.close = closeAll(&clients)
		for range workers {
			client, err := etcdClient(e, o.meter)
			if err != nil {
				return nil, err
			}
			clients = append(clients, client)
			session, err := concurrency.NewSession(client, concurrency.WithTTL(int(ttl.Seconds())))
			if err != nil {
				return nil, err
			}
			o.takes = append(o.takes, func(ctx context.Context, key string) (func(context.Context) error, error) {
				mu := concurrency.NewMutex(session, "sessions/"+key)
				if err := mu.Lock(ctx); err != nil {
					return nil, err
				}
				return mu.Unlock, nil
			})
		}
		o.takes = slices.Clip(o.takes)
		return o, nil
	}}
}
