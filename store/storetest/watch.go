package storetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

func watch() []check {
	return []check{
		{"every change of a key wakes its watchers", changesWake},
		{"a waiter never sleeps through a release", noLostWakeUp},
		{"a watch ends with its context", watchEnds},
		{"a waiter that leaves keeps the key from nobody", leaversLeave},
	}
}

// watcher returns the store as a Watcher. It returns nil if the store cannot
// watch, and so has no promise to keep here.
func (t *trial) watcher(st store.Store) store.Watcher {
	t.Helper()
	w, ok := st.(store.Watcher)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	if _, err := w.Watch(ctx, "watch/probe"); errors.Is(err, errors.ErrUnsupported) {
		return nil
	} else if err != nil {
		t.Fatalf("Watch: %v", err)
	}
	return w
}

// watching begins a watch.
func (t *trial) watching(ctx context.Context, w store.Watcher, key string) <-chan struct{} {
	t.Helper()
	c, err := w.Watch(ctx, key)
	if err != nil {
		t.Fatalf("Watch(%q): %v", key, err)
	}
	return c
}

// woken waits for a wake-up.
func (t *trial) woken(c <-chan struct{}, why string) {
	t.Helper()
	select {
	case _, open := <-c:
		if !open {
			t.Fatalf("the watch broke; %s should have woken it", why)
		}
	case <-time.After(t.Patience):
		t.Fatalf("not woken by %s", why)
	}
}

func changesWake(t *trial) {
	w := t.watcher(t.open())
	if w == nil {
		t.Logf("this store wakes nobody: clients poll")
		return
	}
	const key = "watch/changes"
	first, second := t.watching(t.ctx, w, key), t.watching(t.ctx, w, key)
	mine := acquire(key, "ann")
	for _, req := range []tenure.Request{mine, release(mine), takeover(key), reserve(key, "bob"), revoke(key)} {
		// A wake-up of an earlier change may still be pending. There must be
		// one after this change.
		drain(first)
		drain(second)
		t.must(req)
		t.woken(first, string(req.Verb))
		t.woken(second, string(req.Verb))
	}
	if _, err := w.Watch(t.ctx, "../no key"); !errors.Is(err, fence.ErrInvalid) {
		t.Fatalf("watching what is not a key: %v, want an error matching fence.ErrInvalid", err)
	}
}

func drain(c <-chan struct{}) {
	for {
		select {
		case _, open := <-c:
			if open {
				continue
			}
		default:
		}
		return
	}
}

// noLostWakeUp does what a waiter does: watch, ask, sleep until woken, ask
// again. The release may come at any point, and the waiter must be woken.
func noLostWakeUp(t *trial) {
	other := t.open()
	w := t.watcher(other)
	if w == nil {
		t.Logf("this store wakes nobody: clients poll")
		return
	}
	for n := range t.many(40, 5, 10) {
		key := fmt.Sprintf("watch/waiter/%d", n)
		mine := acquire(key, "ann")
		t.must(mine)
		ctx, cancel := context.WithCancel(t.ctx)
		wake := t.watching(ctx, w, key)
		released := make(chan struct{})
		go func() {
			defer close(released)
			if a := t.resolve(t.store, release(mine)); a.Err != nil {
				t.Errorf("release: %v", a.Err)
			}
		}()
		for {
			next := acquire(key, "bob")
			if a := t.resolve(other, next); a.Err == nil {
				break
			}
			t.woken(wake, "the release of the key it waits for")
		}
		<-released
		cancel()
	}
}

func watchEnds(t *trial) {
	w := t.watcher(t.store)
	if w == nil {
		t.Logf("this store wakes nobody: clients poll")
		return
	}
	ctx, cancel := context.WithCancel(t.ctx)
	c := t.watching(ctx, w, "watch/ends")
	cancel()
	for giveUp := time.After(t.Patience); ; {
		select {
		case _, open := <-c:
			if !open {
				return
			}
		case <-giveUp:
			t.Fatalf("the channel is not closed after the context has ended")
		}
	}
}

// leaversLeave is about stores that grant a key to a waiter which they have
// refused before. A waiter that has left must not hold the key. It must not
// believe that it does when another client has it.
func leaversLeave(t *trial) {
	leaver, other := t.open(), t.open()
	w, mine := t.watcher(leaver), t.watcher(t.store)
	if w == nil || mine == nil {
		t.Logf("this store wakes nobody: clients poll")
		return
	}
	const key = "watch/leaver"
	ok := func(st store.Store, requests ...tenure.Request) {
		t.Helper()
		for _, req := range requests {
			if a := t.resolve(st, req); a.Err != nil {
				t.Fatalf("%s: %v", req.Verb, a.Err)
			}
		}
	}
	for n := range t.many(10, 4, 6) {
		ctx, cancel := context.WithCancel(t.ctx)
		held := acquire(key, "bob") // the leaver has used the key before
		ok(leaver, held, release(held))
		t.watching(ctx, mine, key)
		wake := t.watching(ctx, w, key)
		cancel()
		for range wake { // until it is closed
		}
		first, refused, next := acquire(key, "ann"), acquire(key, "bob"), acquire(key, "carl")
		ok(t.store, first)
		ctx, cancel = context.WithCancel(t.ctx)
		if n%2 == 1 {
			t.watching(ctx, w, key)
		}
		if a := t.resolve(leaver, refused); !errors.Is(a.Err, tenure.ErrHeld) {
			t.Fatalf("the key is held, and another is told %v", a.Err)
		}
		if n%3 == 1 {
			cancel()
		}
		ok(t.store, release(first))
		cancel()
		for giveUp := time.Now().Add(t.Patience); ; {
			a := t.resolve(other, next)
			if a.Err == nil {
				break
			}
			if !errors.Is(a.Err, tenure.ErrHeld) || time.Now().After(giveUp) {
				t.Fatalf("whoever was next has left, and the one after it is told %v", a.Err)
			}
			time.Sleep(time.Millisecond)
		}
		if a := t.resolve(leaver, refused); a.Err == nil {
			t.Fatalf("two hold the key: %+v", a.Record)
		}
		ok(other, release(next))
	}
}
