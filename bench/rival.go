package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// take acquires a key, waiting for it, and returns how to give it back.
type take func(ctx context.Context, key string) (give func(ctx context.Context) error, err error)

// rival is one way to have locks in an engine.
type rival struct {
	name string
	// open connects, for so many workers at once.
	open func(ctx context.Context, workers int) (*opened, error)
}

// opened is a rival at work.
type opened struct {
	// takes has one for each worker, or one that all share.
	takes []take
	// hold acquires a key and keeps it until ctx ends; check says whether it is still held. nil if the rival cannot.
	hold  func(ctx context.Context, key string) (check func() error, err error)
	meter *meter
	close func()
}

func (o *opened) take(worker int) take { return o.takes[worker%len(o.takes)] }

// Terms that all contenders share.
const (
	ttl   = 10 * time.Second
	renew = ttl / 3
)

// floorName is the contender that others are compared with, croftName ours.
const (
	floorName = "floor"
	croftName = "croft"
)

// openAll opens rivals; the function it returns closes them.
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

// cycles acquires and gives back a key until the time is over, and returns how often. At least once.
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

// together runs f for every worker and joins what they say.
func together(workers int, f func(worker int) error) error {
	var all sync.WaitGroup
	errs := make([]error, workers)
	for w := range workers {
		all.Go(func() { errs[w] = f(w) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// keepUp calls extend again and again, for a library that leaves renewing to its user. check says whether that has failed.
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
