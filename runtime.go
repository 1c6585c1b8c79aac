package croft

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/engine"
	"github.com/croft-dev/croft/internal/wait"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// This file runs the engine on a real store. The package comment says which
// goroutines there are, and what the client's mutex protects.
//
// A goroutine that has news calls lock, tells the engine, and calls unlock.
// unlock returns the work that the engine wants done, and do carries it out. A
// caller waits in await. The alarm calls tick when the engine wants it. busy
// counts the goroutines and the calls of the store. Close waits until it is
// zero, and for the alarm.

const (
	// promptWithin is how fast a store must answer for callers to call it on
	// their own goroutine. For a slower store, another goroutine costs nothing
	// in comparison.
	promptWithin = 10 * time.Millisecond
	// inlineTimeout limits a call of the store on the caller's own goroutine.
	// After that the caller must be able to notice the end of its context.
	inlineTimeout = time.Second
	// maxLooks limits how many records are read at the same time.
	maxLooks = 16
)

// pending is a call that a goroutine waits for.
type pending struct {
	engine.Call
	guards []guard.Guard // of an acquire
	wake   chan struct{} // has room for one token
	raise  bool          // the caller must raise the fence and go on waiting
}

// lock locks the client to tell the engine something. It returns the present
// time.
func (c *Client) lock() clock.Instant {
	c.mu.Lock()
	c.now = c.clk.Now()
	return c.now
}

// unlock takes the engine's work and unlocks the client. The caller passes the
// result to do.
func (c *Client) unlock() engine.Ready {
	ready := c.engine.Ready()
	for _, key := range ready.Watch {
		c.startWatch(key)
	}
	for _, key := range ready.Unwatch {
		if w := c.watches[key]; w != nil {
			w.cancel()
			delete(c.watches, key)
		}
	}
	c.busy += len(ready.Send)
	if len(ready.Look) > 0 {
		c.busy++
	}
	c.alarm.Set(c.now, ready.Wake)
	if c.closed && ready.Idle && !isClosed(c.idle) {
		close(c.idle)
	}
	c.settle()
	c.mu.Unlock()
	return ready
}

// do carries out the engine's work. No lock is held.
func (c *Client) do(ready engine.Ready) {
	for _, b := range ready.Send {
		go c.send(b)
	}
	if len(ready.Look) > 0 {
		go c.look(ready.Look)
	}
	for _, l := range ready.Over {
		c.over(l)
	}
	for _, call := range ready.Raise {
		p := call.Tag.(*pending)
		p.raise = true
		p.wake <- struct{}{}
	}
	// Before the replies: the begin of a lease must be told before its end.
	for _, e := range ready.Events {
		c.emit(eventOf(e))
	}
	for _, call := range ready.Replies {
		if p, waits := call.Tag.(*pending); waits {
			p.wake <- struct{}{}
		}
	}
}

// run makes a call and waits for its reply.
func (c *Client) run(ctx context.Context, p *pending) {
	p.Tag = p
	p.wake, _ = c.wakes.Get().(chan struct{})
	if p.wake == nil {
		p.wake = make(chan struct{}, 1)
	}
	now := c.lock()
	c.engine.Begin(now, &p.Call)
	prompt := c.prompt
	ready := c.unlock()
	if prompt && len(ready.Send) == 1 && ready.Send[0].Caller == &p.Call && ctx.Err() == nil {
		// Handing the call to a goroutine, and the answer back, can take as
		// long as the store itself.
		b := ready.Send[0]
		ready.Send = nil
		c.do(ready)
		c.do(c.apply(ctx, min(inlineTimeout, c.o.CallTimeout), b))
		c.leave()
	} else {
		c.do(ready)
	}
	c.await(ctx, p)
	c.wakes.Put(p.wake)
}

// await waits for the reply to a call. If the engine asks for it, it raises the
// fence meanwhile.
func (c *Client) await(ctx context.Context, p *pending) {
	left := ctx.Done()
	for {
		select {
		case <-p.wake:
			if !p.raise {
				return
			}
			p.raise = false
			c.raiseFor(ctx, p)
		case <-left:
			left = nil
			now := c.lock()
			c.engine.Abandon(now, &p.Call, wait.Ended(ctx))
			c.do(c.unlock())
		}
	}
}

// ask makes a call of one request and returns the store's answer. If ctx has no
// deadline, it gives up after bound.
func (c *Client) ask(ctx context.Context, req tenure.Request, bound time.Duration) (store.Answer, error) {
	p := &pending{Call: engine.Call{Request: req}}
	if err := c.try(ctx, p, bound); err != nil {
		return store.Answer{}, err
	}
	if p.Reply.Answer == nil {
		return store.Answer{}, p.Reply.Err
	}
	return *p.Reply.Answer, p.Reply.Err
}

// try runs a plain call, unless ctx has ended. A release is tried even then:
// one message may free the key.
func (c *Client) try(ctx context.Context, p *pending, bound time.Duration) error {
	if err := wait.Ended(ctx); err != nil && p.Request.Verb != tenure.Release {
		return fmt.Errorf("%s of %q was not tried: %w", p.Request.Verb, p.Request.Key, err)
	}
	if _, bounded := ctx.Deadline(); !bounded {
		p.Bound = bound
	}
	c.run(ctx, p)
	return nil
}

// send carries out a batch, and then the batches that have formed meanwhile.
func (c *Client) send(b *engine.Batch) {
	for {
		ready := c.apply(c.life, c.o.CallTimeout, b)
		if len(ready.Send) == 0 {
			c.do(ready)
			c.leave()
			return
		}
		// Send the next batch first: waking all callers takes a while.
		b, ready.Send = ready.Send[0], ready.Send[1:]
		go func() {
			defer c.leave()
			c.do(ready)
		}()
	}
}

// apply calls the store with a batch and gives the engine its answers. It
// returns the engine's next work. The caller carries that out, and then calls
// leave.
func (c *Client) apply(ctx context.Context, limit time.Duration, b *engine.Batch) (ready engine.Ready) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	start, returned := c.clk.Now(), false
	var answers []store.Answer
	defer func() {
		now := c.lock()
		c.prompt = now.Sub(start) <= promptWithin
		c.engine.Answered(now, b, answers)
		if !returned && b.Caller != nil { // the store has panicked
			c.engine.Forget(now, b.Caller, errPanicked)
		}
		ready = c.unlock()
		if !returned { // other calls go on if the caller recovers
			c.do(ready)
			c.leave()
		}
	}()
	answers = c.st.Apply(ctx, b.Requests)
	store.SignGrants(c.o.SignKey, b.Requests, answers)
	if c.observed() {
		for _, e := range engine.EventsOf(b, answers, c.clk.Now().Sub(start)) {
			c.emit(eventOf(e))
		}
	}
	returned = true
	return ready
}

// look reads the records of stalled leases, because another process may have
// reported progress.
func (c *Client) look(leases []*engine.Lease) {
	defer c.leave()
	var wait sync.WaitGroup
	var next atomic.Int64
	// In parallel: a record that cannot be read delays no other.
	for range min(len(leases), maxLooks) {
		wait.Go(func() {
			for i := next.Add(1); i <= int64(len(leases)); i = next.Add(1) {
				c.lookAt(leases[i-1])
			}
		})
	}
	wait.Wait()
}

func (c *Client) lookAt(l *engine.Lease) {
	ctx, cancel := context.WithTimeout(c.life, c.o.CallTimeout)
	defer cancel()
	rec, err := c.st.Get(ctx, l.Key)
	if err != nil {
		return
	}
	at, err := c.st.Now(ctx)
	if err != nil {
		return
	}
	now := c.lock()
	c.engine.Looked(now, l, rec, at)
	c.do(c.unlock())
}

// startWatch starts a goroutine that passes the store's hints about a key, or
// about operators' acts, to the engine. The caller holds the mutex.
func (c *Client) startWatch(key string) {
	ctx, cancel := context.WithCancel(c.life)
	w := &watch{cancel}
	c.watches[key] = w
	c.busy++
	go func() {
		defer c.leave()
		defer c.stopWatch(key, w)
		watch := c.watchKey
		if key == engine.Acts {
			watch = c.watchActs
		}
		err := watch(ctx, key)
		if errors.Is(err, errors.ErrUnsupported) {
			c.hint(ctx, key, engine.Unsupported, err)
			return
		}
		c.hint(ctx, key, engine.Broken, err)
	}()
}

// watchKey passes on hints about a key until they end.
func (c *Client) watchKey(ctx context.Context, key string) error {
	watcher := c.st.(store.Watcher)
	hints, err := watcher.Watch(ctx, key)
	if err != nil {
		return err
	}
	c.hint(ctx, key, engine.Watched, nil)
	for range hints {
		c.hint(ctx, key, engine.Changed, nil)
	}
	return errHintsEnded
}

// watchActs passes on hints about operators' acts until they end.
func (c *Client) watchActs(ctx context.Context, _ string) error {
	keys, err := c.st.(store.Announcer).Acts(ctx)
	if err != nil {
		return err
	}
	c.hint(ctx, engine.Acts, engine.Watched, nil)
	for key := range keys {
		c.hint(ctx, key, engine.Acted, nil)
	}
	return errHintsEnded
}

// watch is a stream of hints that can be stopped.
type watch struct{ cancel context.CancelFunc }

// stopWatch forgets a watch that has ended.
func (c *Client) stopWatch(key string, w *watch) {
	w.cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watches[key] == w {
		delete(c.watches, key)
	}
}

// errPanicked says why a call has no outcome after the store has panicked.
var errPanicked = errors.New("the store has panicked")

// errHintsEnded says that a watch broke off.
var errHintsEnded = errors.New("the store's hints have ended")

// hint passes a hint to the engine, unless its watch was stopped.
func (c *Client) hint(ctx context.Context, key string, h engine.Hint, err error) {
	now := c.lock()
	if ctx.Err() == nil {
		c.engine.Hint(now, key, h, err)
	}
	c.do(c.unlock())
}

// tick tells the engine that time has passed.
func (c *Client) tick() {
	now := c.lock()
	c.engine.Tick(now)
	c.do(c.unlock())
}

// paused tells observers that the client's timer was late.
func (c *Client) paused(late time.Duration) { c.emit(Event{Kind: EventPaused, Took: late}) }
