package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// take acquires a key, waiting for it, and returns a function that releases it.
type take func(ctx context.Context, key string) (give func(ctx context.Context) error, err error)

// rival is one way to have locks on a server.
type rival struct {
	name string
	// open connects, for that many workers at once.
	open func(ctx context.Context, workers int) (*opened, error)
}

// opened is a connected rival.
type opened struct {
	// takes has one take for each worker, or a single one for all.
	takes []take
	// hold acquires a key and keeps it until ctx ends. check reports whether it
	// is still held. hold is nil if the rival cannot do that.
	hold  func(ctx context.Context, key string) (check func() error, err error)
	meter *meter
	close func()
}

func (o *opened) take(worker int) take { return o.takes[worker%len(o.takes)] }

// The TTL and the renewal interval of all contenders.
const (
	ttl   = 10 * time.Second
	renew = ttl / 3
)

// floorName is the contender that the others are compared with. croftName is
// ours.
const (
	floorName = "floor"
	croftName = "croft"
)

// openAll opens all rivals. The function that it returns closes them.
func openAll(ctx context.Context, rivals []rival, workers int) (all []*opened, end func(), err error) {
	end = func() {
		for _, o := range all {
			o.close()
		}
	}
	for _, r := range rivals {
		o, err := r.open(ctx, workers)
		if err != nil {
			end()
			return nil, nil, fmt.Errorf("%s: %w", r.name, err)
		}
		all = append(all, o)
	}
	return all, end, nil
}

// cycles acquires and releases a key until the time is over, but at least once.
// It returns how often.
func cycles(ctx context.Context, t take, key string, until time.Time) (n int, err error) {
	for n == 0 || time.Now().Before(until) {
		give, err := t(ctx, key)
		if err != nil {
			return n, err
		}
		if err := give(ctx); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// together runs f for every worker at once, and joins their errors.
func together(workers int, f func(worker int) error) error {
	var all sync.WaitGroup
	errs := make([]error, workers)
	for w := range workers {
		all.Go(func() { errs[w] = f(w) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// keepUp calls extend at every renewal interval, for libraries that leave
// renewing to their user. check returns the error if that has failed.
func keepUp(ctx context.Context, extend func(ctx context.Context) error) (check func() error) {
	var failed atomic.Pointer[error]
	go func() {
		tick := time.NewTicker(renew)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if err := extend(ctx); err != nil {
				failed.Store(&err)
				return
			}
		}
	}()
	return func() error {
		if err := failed.Load(); err != nil {
			return *err
		}
		return nil
	}
}
