package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncpool "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/backend/redis"
	"github.com/croft-dev/croft/store"
)

// goRedis returns a metered go-redis client, with as many connections as the
// workers can use at once.
func goRedis(e *engine, m *meter, workers int) *goredis.Client {
	return goredis.NewClient(&goredis.Options{
		Addr: e.addr, PoolSize: max(workers, 10),
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return m.overRedis(c), nil
		},
	})
}

// croftRedis is Croft as applications use it: one client for all workers.
func croftRedis(e *engine) rival {
	return rival{croftName, func(_ context.Context, workers int) (*opened, error) {
		m := &meter{}
		client := goRedis(e, m, workers)
		return openCroft(
			m, 1, func(context.Context) (store.Store, error) { return redis.New(client, nil), nil },
			func() { _ = client.Close() },
		)
	}}
}

// croftRedisApart is Croft with a client and a connection for every worker, as
// if each were a process.
func croftRedisApart(e *engine) rival {
	return rival{croftName + ", a client for each waiter", func(_ context.Context, workers int) (*opened, error) {
		m := &meter{}
		var clients []*goredis.Client
		open := func(context.Context) (store.Store, error) {
			client := goRedis(e, m, 1)
			clients = append(clients, client)
			return redis.New(client, nil), nil
		}
		return openCroft(m, workers, open, func() {
			for _, c := range clients {
				_ = c.Close()
			}
		})
	}}
}

// openCroft makes n clients, each with a store of its own.
func openCroft(m *meter, n int, open func(context.Context) (store.Store, error), closeAll func()) (*opened, error) {
	o := &opened{meter: m}
	var clients []*croft.Client
	for range n {
		st, err := open(context.Background())
		if err != nil {
			return nil, err
		}
		client := croft.New(st, nil)
		clients = append(clients, client)
		o.takes = append(o.takes, func(ctx context.Context, key string) (func(context.Context) error, error) {
			lease, err := client.Acquire(ctx, "bench/"+key, &croft.LeaseOptions{TTL: ttl, WaitFor: croft.Forever})
			if err != nil {
				return nil, err
			}
			return lease.Release, nil
		})
	}
	o.hold = func(ctx context.Context, key string) (func() error, error) {
		lease, err := clients[0].Acquire(ctx, "bench/"+key, &croft.LeaseOptions{TTL: ttl})
		if err != nil {
			return nil, err
		}
		return lease.Err, nil
	}
	o.close = func() {
		for _, client := range clients {
			_ = client.Close()
			_ = client.Store().Close()
		}
		closeAll()
	}
	return o, nil
}

// The smallest scripts that lock and unlock a key safely.
var (
	floorTake = goredis.NewScript(`return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])`)
	floorGive = goredis.NewScript(
		`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`,
	)
)

// The commands of Croft's own scripts and nothing else: they read the time,
// read and write the record, and wake the waiters.
var recordTake = goredis.NewScript(`
	redis.call('TIME')
	redis.call('HMGET', KEYS[1], 'r', 'g')
	redis.call('PUBLISH', KEYS[1], 'held')
	redis.call('HSET', KEYS[1], 'r', ARGV[1], 't', ARGV[2])
	return ARGV[1]`)

// floorRedis is two handwritten scripts.
func floorRedis(e *engine) rival {
	return byHandRedis(floorName, e, []*goredis.Script{floorTake, floorGive},
		func(ctx context.Context, client *goredis.Client, key string) (func(context.Context) error, error) {
			keys, secret := []string{"floor:" + key}, rand.Text()
			if err := floorTake.EvalSha(ctx, client, keys, secret, ttl.Milliseconds()).Err(); err != nil {
				return nil, err
			}
			return func(ctx context.Context) error { return floorGive.EvalSha(ctx, client, keys, secret).Err() }, nil
		})
}

// recordRedis shows the cost of a token, a history and waiters by themselves.
// It keeps records of Croft's size, without its law.
func recordRedis(e *engine) rival {
	record, term := strings.Repeat("r", 200), strings.Repeat("t", 100)
	return byHandRedis("the same commands without the law, for scale", e, []*goredis.Script{recordTake},
		func(ctx context.Context, client *goredis.Client, key string) (func(context.Context) error, error) {
			write := func(ctx context.Context) error {
				return recordTake.EvalSha(ctx, client, []string{"record:" + key}, record, term).Err()
			}
			return write, write(ctx)
		})
}

// byHandRedis makes a contender of scripts and a client.
func byHandRedis(
	name string, e *engine, scripts []*goredis.Script,
	t func(ctx context.Context, client *goredis.Client, key string) (func(context.Context) error, error),
) rival {
	return rival{name, func(ctx context.Context, workers int) (*opened, error) {
		m := &meter{}
		client := goRedis(e, m, workers)
		for _, s := range scripts {
			if err := s.Load(ctx, client).Err(); err != nil {
				return nil, err
			}
		}
		bound := func(ctx context.Context, key string) (func(context.Context) error, error) {
			return t(ctx, client, key)
		}
		return &opened{takes: []take{bound}, meter: m, close: func() { _ = client.Close() }}, nil
	}}
}

// redsyncRival waits as by default: it asks again after 50 to 250 ms.
func redsyncRival(e *engine) rival {
	return rival{"redsync", func(_ context.Context, workers int) (*opened, error) {
		m := &meter{}
		client := goRedis(e, m, workers)
		rs := redsync.New(redsyncpool.NewPool(client))
		mutex := func(key string) *redsync.Mutex {
			return rs.NewMutex("redsync:"+key, redsync.WithExpiry(ttl), redsync.WithTries(1<<20))
		}
		t := func(ctx context.Context, key string) (func(context.Context) error, error) {
			mu := mutex(key)
			if err := mu.LockContext(ctx); err != nil {
				return nil, err
			}
			return func(ctx context.Context) error { _, err := mu.UnlockContext(ctx); return err }, nil
		}
		hold := func(ctx context.Context, key string) (func() error, error) {
			mu := mutex(key)
			if err := mu.LockContext(ctx); err != nil {
				return nil, err
			}
			return keepUp(ctx, func(ctx context.Context) error { _, err := mu.ExtendContext(ctx); return err }), nil
		}
		return &opened{takes: []take{t}, hold: hold, meter: m, close: func() { _ = client.Close() }}, nil
	}}
}

// redislockRival waits as its documentation shows: it asks again every 100 ms.
func redislockRival(e *engine) rival {
	return rival{"redislock", func(_ context.Context, workers int) (*opened, error) {
		m := &meter{}
		client := goRedis(e, m, workers)
		locker := redislock.New(client)
		obtain := func(ctx context.Context, key string) (*redislock.Lock, error) {
			if _, bounded := ctx.Deadline(); !bounded { // without a deadline it gives up after the TTL
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, time.Hour)
				defer cancel()
			}
			return locker.Obtain(ctx, "redislock:"+key, ttl, &redislock.Options{
				RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond),
			})
		}
		t := func(ctx context.Context, key string) (func(context.Context) error, error) {
			lock, err := obtain(ctx, key)
			if err != nil {
				return nil, err
			}
			return lock.Release, nil
		}
		hold := func(ctx context.Context, key string) (func() error, error) {
			lock, err := obtain(ctx, key)
			if err != nil {
				return nil, err
			}
			return keepUp(ctx, func(ctx context.Context) error { return lock.Refresh(ctx, ttl, nil) }), nil
		}
		return &opened{takes: []take{t}, hold: hold, meter: m, close: func() { _ = client.Close() }}, nil
	}}
}

// rueidislockRival has its cheapest settings: one key for a lock instead of
// three, and no notice of its own writes. With apart it has a client for every
// worker.
func rueidislockRival(e *engine, apart bool) rival {
	name := "rueidislock (one key)"
	if apart {
		name += ", a client for each waiter"
	}
	return rival{name, func(_ context.Context, workers int) (*opened, error) {
		o := &opened{meter: &meter{}}
		var lockers []rueidislock.Locker
		o.close = func() {
			for _, l := range lockers {
				l.Close()
			}
		}
		if !apart {
			workers = 1
		}
		for range workers {
			locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
				ClientOption: rueidis.ClientOption{
					InitAddress: []string{e.addr},
					DialCtxFn: func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
						c, err := d.DialContext(ctx, "tcp", addr)
						if err != nil {
							return nil, err
						}
						return o.meter.overRedis(c), nil
					},
				},
				KeyValidity: ttl, ExtendInterval: renew, KeyMajority: 1, NoLoopTracking: true,
			})
			if err != nil {
				o.close()
				return nil, err
			}
			lockers = append(lockers, locker)
			o.takes = append(o.takes, func(ctx context.Context, key string) (func(context.Context) error, error) {
				_, cancel, err := locker.WithContext(ctx, key)
				if err != nil {
					return nil, err
				}
				return func(context.Context) error { cancel(); return nil }, nil
			})
		}
		o.hold = func(ctx context.Context, key string) (func() error, error) {
			// Nobody else wants the key. WithContext would wait for ever if the
			// first try failed, which happens on a busy machine.
			var err error
			for range 100 {
				held, _, tryErr := lockers[0].TryWithContext(ctx, key)
				if tryErr == nil {
					return held.Err, nil
				}
				if err = tryErr; ctx.Err() != nil {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
			return nil, err
		}
		return o, nil
	}}
}

// emptyRedis removes all keys of the workload before.
func emptyRedis(ctx context.Context, e *engine) error {
	client := goredis.NewClient(&goredis.Options{Addr: e.addr})
	defer client.Close()
	if err := client.FlushAll(ctx).Err(); err != nil {
		return fmt.Errorf("emptying Redis: %w", err)
	}
	return nil
}
