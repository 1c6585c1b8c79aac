package croft

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/identity"
	"github.com/croft-dev/croft/store"
)

// closeBound is how long Close waits for what has no outcome yet.
const closeBound = 2 * time.Second

// longestCall is the most that CallTimeout can be: twice as long must still be a duration.
const longestCall = 24 * time.Hour

// Client takes and keeps leases in one store. It is safe for concurrent use; one per process and store is enough, and lets its
// leases be renewed together.
type Client struct {
	st     store.Store
	owned  bool // the store is the client's to close
	o      Options
	clk    clock.Clock
	random func() float64 // from 0 up to 1; safe for concurrent use

	calls  *combiner
	lines  *lines
	warden *warden
	// refusals are noted here for operators.
	refusals *recorder
	closing  chan struct{} // closed when Close begins
	ears     sync.Pool     // of *ear
	life     context.Context
	kill     context.CancelFunc

	mu     sync.Mutex
	closed bool
	busy   int           // operations and background tasks under way
	idle   chan struct{} // closed when busy is 0 after Close has begun
	done   chan struct{} // closed when Close has ended
	err    error         // of Close
}

// New makes a client of a store. The store stays the caller's to close, after the client. A client that has held no lease for two seconds runs no goroutine, but only
// a closed one is sure to have left nothing behind.
func New(st store.Store, o *Options) *Client { return newClient(st, o, clock.System(), rand.Float64) }

func newClient(st store.Store, o *Options, clk clock.Clock, random func() float64) *Client {
	c := &Client{st: st, clk: clk, random: random, closing: make(chan struct{}), idle: make(chan struct{}), done: make(chan struct{})}
	if o != nil {
		c.o = *o
	}
	c.o.Owner = cmp.Or(c.o.Owner, identity.Owner())
	c.o.Instance = cmp.Or(c.o.Instance, identity.Instance())
	if c.o.CallTimeout <= 0 {
		c.o.CallTimeout = 5 * time.Second
	}
	c.o.CallTimeout = min(c.o.CallTimeout, longestCall)
	c.life, c.kill = context.WithCancel(context.Background())
	c.calls = &combiner{st: st, life: c.life, timeout: c.o.CallTimeout, clk: clk}
	if p, is := st.(store.Pipelined); is {
		c.calls.beside = p.Pipelines()
	}
	if c.o.Observe != nil || c.o.Logger != nil {
		c.calls.observe = c.emit
	}
	c.lines = &lines{c: c, byKey: map[string]*line{}}
	c.warden = &warden{c: c, poke: make(chan struct{}, 1)}
	c.refusals = &recorder{c: c}
	return c
}

// Open makes a client of the store a URL names, and closes that store with the client. The URL's scheme must have been registered, by
// importing its backend.
func Open(ctx context.Context, storeURL string, o *Options) (*Client, error) {
	st, err := store.Open(ctx, storeURL)
	if err != nil {
		return nil, err
	}
	c := New(st, o)
	c.owned = true
	return c, nil
}

// Store is the client's store, for reading and watching.
func (c *Client) Store() store.Store { return c.st }

// Close ends renewals and waits for what the client runs to end: the context of every open lease ends with cause [Closed], and whoever waits for a
// key is told [ErrClosed]. It releases no lease (they lapse at their deadline; Release before Close where that matters), but resolves and releases
// what abandoned acquires may have left behind, for at most 2 seconds; if that is not enough its error matches ErrUnknown. A second Close waits for the first.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		<-c.done
		return c.err
	}
	c.closed = true
	if c.busy == 0 {
		close(c.idle)
	}
	close(c.closing) // whoever is told ErrClosed finds it so
	c.mu.Unlock()

	c.warden.close()
	if !c.wait(c.idle, closeBound) {
		c.err = store.Unknown(errors.New("closed before every request had an outcome; what was granted unnoticed lapses at its deadline"))
	}
	c.refusals.flush()
	c.kill()
	c.refusals.flush()
	c.wait(c.idle, time.Second) // what waits for the store sees the end of its context
	c.wait(c.calls.close(), time.Second)
	if c.owned {
		c.err = errors.Join(c.err, c.st.Close())
	}
	close(c.done)
	return c.err
}

// enter begins an operation, unless the client is closed. Every enter has its leave.
func (c *Client) enter() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fmt.Errorf("%w; make a new one", ErrClosed)
	}
	c.busy++
	return nil
}

// fork runs a background task that outlives the operation it is called from. Close waits for it.
func (c *Client) fork(task func()) {
	c.mu.Lock()
	c.busy++
	c.mu.Unlock()
	go func() {
		defer c.leave()
		task()
	}()
}

func (c *Client) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy--
	if c.busy == 0 && c.closed && !isClosed(c.idle) {
		close(c.idle)
	}
}

// wait reports whether done is closed within d of the process's own time.
func (c *Client) wait(done <-chan struct{}, d time.Duration) bool {
	select {
	case <-done:
		return true
	default:
	}
	timer := c.clk.Timer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C():
		return false
	}
}
