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
	"github.com/croft-dev/croft/internal/engine"
	"github.com/croft-dev/croft/internal/identity"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/refusals"
	"github.com/croft-dev/croft/tenure"
)

// closeBound is how long Close waits for unknown outcomes. The engine itself
// gives up after two seconds.
const closeBound = 3 * time.Second

// longestCall is the maximum of CallTimeout. Twice as long must still fit into
// a Duration.
const longestCall = 24 * time.Hour

// Client takes and keeps leases in one store. It is safe for concurrent use.
// One client per process and store is enough: it renews its leases together.
type Client struct {
	st     store.Store
	owned  bool // Close also closes the store
	o      Options
	clk    clock.Clock
	random func() float64 // from 0 up to 1; safe for concurrent use

	// refusals records for operators that requests were refused.
	refusals *refusals.Recorder
	wakes    sync.Pool     // of chan struct{}, for pending calls
	closing  chan struct{} // closed when Close begins
	idle     chan struct{} // closed after that, when every call has its outcome
	quiet    chan struct{} // closed after that, when no goroutine is left
	done     chan struct{} // closed when Close is done
	err      error         // the result of Close
	life     context.Context
	kill     context.CancelFunc

	// mu protects the fields below.
	mu      sync.Mutex
	engine  *engine.Engine
	alarm   *clock.Alarm      // ticks when the engine wants it
	watches map[string]*watch // by key
	prompt  bool              // the store answered its last call within 10 ms
	closed  bool
	now     clock.Instant // when lock was last called
	busy    int           // goroutines of this client, and calls of the store
}

// New makes a client of a store. The store remains the caller's: close it after
// the client. A client that has held no lease for two seconds runs no
// goroutines. To be sure that nothing is left behind, call [Client.Close].
func New(st store.Store, o *Options) *Client { return newClient(st, o, clock.System(), rand.Float64) }

func newClient(st store.Store, o *Options, clk clock.Clock, random func() float64) *Client {
	c := &Client{
		st: st, clk: clk, random: random, watches: map[string]*watch{},
		closing: make(chan struct{}), idle: make(chan struct{}), quiet: make(chan struct{}), done: make(chan struct{}),
	}
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
	options := engine.Options{
		Observed: c.observed(), CallTimeout: c.o.CallTimeout, Random: random, NewSecret: tenure.NewSecret,
	}
	_, options.Watches = st.(store.Watcher)
	_, options.Acts = st.(store.Announcer)
	c.engine = engine.New(options)
	c.alarm = clock.NewAlarm(clk, c.tick, c.paused)
	c.refusals = refusals.NewRecorder(st, clk, c.o.CallTimeout)
	return c
}

// Open makes a client of the store at a URL. The client closes that store when
// it is closed itself. The URL's scheme must be registered: import the package
// of its backend. Open returns an error if it is not, or if the store cannot be
// opened.
func Open(ctx context.Context, storeURL string, o *Options) (*Client, error) {
	st, err := store.Open(ctx, storeURL)
	if err != nil {
		return nil, err
	}
	c := New(st, o)
	c.owned = true
	return c, nil
}

// Store returns the client's store, for reading and watching.
func (c *Client) Store() store.Store { return c.st }

// Close ends the client. The context of every live lease ends with cause
// [Closed], and callers that wait for a key get [ErrClosed].
//
// Close does not release leases: they lapse at their deadline. Release them
// first where that matters. But it does release what abandoned acquires may
// have been granted, and waits for that for about 2 seconds. If that is not
// enough, its error matches [ErrUnknown].
//
// At the end, Close waits up to a second for the client's goroutines. A second
// Close waits for the first and returns its error.
func (c *Client) Close() error {
	now := c.lock()
	if c.closed {
		c.mu.Unlock()
		<-c.done
		return c.err
	}
	c.closed = true
	close(c.closing) // before any caller gets ErrClosed
	c.engine.Close(now, ErrClosed)
	c.do(c.unlock())

	idle := c.wait(c.idle, closeBound)
	c.mu.Lock()
	left := !idle || c.engine.Left()
	c.mu.Unlock()
	if left {
		c.err = store.Unknown(errors.New("closed before every request had an outcome; " +
			"what was granted unnoticed lapses at its deadline"))
	}
	c.refusals.Close()
	c.kill()
	c.wait(c.quiet, time.Second)
	c.wait(c.alarm.Stop(), time.Second)
	if c.owned {
		c.err = errors.Join(c.err, c.st.Close())
	}
	close(c.done)
	return c.err
}

// enter begins an operation of several calls. Close waits until it calls leave.
func (c *Client) enter() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fmt.Errorf("%w; make a new one", ErrClosed)
	}
	c.busy++
	return nil
}

// leave notes that a goroutine or an operation has ended.
func (c *Client) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy--
	c.settle()
}

// settle tells Close when no goroutine is left. The caller holds the mutex.
func (c *Client) settle() {
	if c.closed && c.busy == 0 && isClosed(c.idle) && !isClosed(c.quiet) {
		close(c.quiet)
	}
}

// wait reports whether done is closed within d. It returns as soon as it is.
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

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
