// Package crowd runs many clients that take turns at a few keys of a store, and
// judges their histories.
//
// Under each key the clients write through a guard. A client that gets no
// answer asks again. The package is for tests of backends that kill, stop and
// cut off servers meanwhile: no law may be broken, and every client must go on
// without help.
//
// Each client is a goroutine with a store handle of its own. A mutex guards the
// history that they share. The clients work until [Crowd.Judge] stops them and
// waits for them. Then Judge checks the history.
package crowd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard/guardtest"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/storetest"
	"github.com/croft-dev/croft/tenure"
)

// Harness has the stores and the guard that a crowd uses.
type Harness struct {
	// Stores has a handle for each client.
	Stores []store.Store
	// Keys are the keys at which the clients take turns.
	Keys []string
	// TTL of leases. If a client is cut off while it holds a key, the others
	// wait for this long.
	TTL time.Duration
	// Write sends one guarded write under a key. If the guard admits it,
	// Written then ends with the stamp's token. If the outcome is not known,
	// the error matches store.ErrUnknown.
	Write func(ctx context.Context, key string, s fence.Stamp) error
	// Written returns the tokens of all admitted writes under a key, in their
	// order.
	Written func(ctx context.Context, key string) ([]fence.Token, error)
	// Forgets says that the store may lose changes that it has confirmed. The
	// guard never does.
	Forgets bool
}

// Keys returns n names of keys.
func Keys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("crowd/%d", i)
	}
	return keys
}

// Crowd is a group of clients at work.
type Crowd struct {
	Harness
	tb    testing.TB
	ctx   context.Context
	halt  context.CancelFunc
	all   sync.WaitGroup
	terms []atomic.Int64 // the number of finished terms, by client
	clock atomic.Int64

	mu      sync.Mutex                   // guards the fields below
	newest  map[string]fence.Token       // by key: the newest token that a client knows
	granted map[string]fence.Grant       // by key and token
	writes  map[string][]guardtest.Event // by key: writes that a client knows were admitted
}

// Gather starts a client for each store. They work until Judge is called.
func Gather(tb testing.TB, h Harness) *Crowd {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 10*testenv.Patience)
	stop, halt := context.WithCancel(ctx)
	c := &Crowd{
		Harness: h, tb: tb, ctx: ctx, halt: halt, terms: make([]atomic.Int64, len(h.Stores)),
		newest: map[string]fence.Token{}, granted: map[string]fence.Grant{}, writes: map[string][]guardtest.Event{},
	}
	for n, st := range h.Stores {
		c.all.Go(func() { c.live(stop, st, n) })
	}
	tb.Cleanup(func() {
		cancel()
		c.all.Wait()
	})
	return c
}

// live runs one client.
func (c *Crowd) live(stop context.Context, st store.Store, n int) {
	pause := time.Millisecond
	for turn := 0; stop.Err() == nil; turn++ {
		mine := tenure.Request{
			Verb: tenure.Acquire, Key: c.Keys[(n+turn)%len(c.Keys)], Secret: tenure.NewSecret(),
			Owner: fmt.Sprintf("client %d", n), TTL: c.TTL,
		}
		c.mu.Lock()
		before := c.newest[mine.Key]
		c.mu.Unlock()
		a := storetest.Resolve(c.ctx, st, mine)
		if a.Err != nil {
			if !errors.Is(a.Err, tenure.ErrHeld) {
				c.late(a.Err)
			}
			select { // back off like a client: the holders need the processor
			case <-stop.Done():
			case <-time.After(pause):
			}
			pause = min(2*pause, 64*time.Millisecond)
			continue
		}
		pause = time.Millisecond
		c.judgeGrant(before, a.Record)
		c.work(st, mine, a.Record.Stamp())
		if a := c.then(st, tenure.Release, mine); a.Err != nil {
			c.late(a.Err)
		}
		c.terms[n].Add(1)
	}
}

func (c *Crowd) then(st store.Store, verb tenure.Verb, mine tenure.Request) store.Answer {
	return storetest.Resolve(c.ctx, st, tenure.Request{Verb: verb, Key: mine.Key, Secret: mine.Secret})
}

// work makes numbered writes and renews in between. A client that has lost its
// lease goes on writing, as if it had not been told. If a write is refused as
// stale, the client must have lost its lease.
func (c *Crowd) work(st store.Store, mine tenure.Request, s fence.Stamp) {
	for s.Seq = 1; s.Seq <= 3; s.Seq++ {
		err := c.write(mine.Key, s)
		a := c.then(st, tenure.Renew, mine)
		switch {
		// Repeated: the first copy was admitted, and its reply was lost.
		case c.ctx.Err() != nil || err == nil || errors.Is(err, fence.ErrRepeated):
		case errors.Is(err, fence.ErrStale):
			if a.Err == nil && !c.Forgets {
				c.tb.Errorf("law 7: %v, and the lease is still its own", err)
			}
		default:
			c.tb.Errorf("guarded write: %v", err)
		}
		if a.Err != nil {
			c.late(a.Err)
		}
	}
}

// write writes until the outcome is known.
func (c *Crowd) write(key string, s fence.Stamp) error {
	for {
		e := guardtest.Event{
			Kind: guardtest.Write, Token: s.Token, Who: fmt.Sprintf("%s %d", key, s.Seq), Begin: c.clock.Add(1),
		}
		err := c.Write(c.ctx, key, s)
		e.End = c.clock.Add(1)
		if err == nil {
			c.mu.Lock()
			c.writes[key] = append(c.writes[key], e)
			c.mu.Unlock()
		}
		if !errors.Is(err, store.ErrUnknown) || c.ctx.Err() != nil {
			return err
		}
		select { // back off like a client
		case <-c.ctx.Done():
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// late accepts that a client came too late, because it was cut off for longer
// than its lease. Any other error is a broken law.
func (c *Crowd) late(err error) {
	var lost *tenure.NotOwnedError
	if errors.As(err, &lost) && (c.Forgets || lost.Why == tenure.WhyExpired || lost.Why == tenure.WhySuperseded) ||
		c.ctx.Err() != nil {
		return
	}
	c.tb.Errorf("a client was told: %v", err)
}

// judgeGrant checks a grant against laws 1 and 2. No other grant has its token.
// The token is above all tokens that were known before the request was sent.
func (c *Crowd) judgeGrant(before fence.Token, rec tenure.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := fmt.Sprintf("%s@%d", rec.Key, rec.Token)
	if g, taken := c.granted[at]; taken && g != rec.Grant {
		c.tb.Errorf("law 1: token %d of %s was granted twice", rec.Token, rec.Key)
	}
	c.granted[at] = rec.Grant
	if rec.Token <= before {
		c.tb.Errorf("law 2: token %d of %s was granted after %d", rec.Token, rec.Key, before)
	}
	c.newest[rec.Key] = max(c.newest[rec.Key], rec.Token)
}

// Terms returns how many terms have ended.
func (c *Crowd) Terms() (n int64) {
	for i := range c.terms {
		n += c.terms[i].Load()
	}
	return n
}

// GoesOn waits until that many more terms have ended.
func (c *Crowd) GoesOn(why string, more int64) {
	c.tb.Helper()
	goal := c.Terms() + more
	c.until(why, func() (int64, error) {
		now := c.Terms()
		return goal - now, fmt.Errorf("%d terms, waiting for %d", now, goal)
	})
}

// EverybodyGoesOn waits until every client has had one more term.
func (c *Crowd) EverybodyGoesOn(why string) {
	c.tb.Helper()
	due := make([]int64, len(c.terms))
	for n := range due {
		due[n] = c.terms[n].Load() + 1
	}
	c.until(why, func() (left int64, err error) {
		for n := range due {
			if c.terms[n].Load() < due[n] {
				left, err = left+1, fmt.Errorf("client %d is stuck", n)
			}
		}
		return left, err
	})
}

// until waits until missing returns 0. It fails the test if the number does not
// fall for as long as the tests' patience lasts. A slow machine may take longer
// for the whole wait.
func (c *Crowd) until(why string, missing func() (left int64, err error)) {
	c.tb.Helper()
	least, _ := missing()
	for end := time.Now().Add(testenv.Patience); least > 0 && !c.tb.Failed(); time.Sleep(5 * time.Millisecond) {
		left, err := missing()
		if left < least {
			least, end = left, time.Now().Add(testenv.Patience)
		}
		if time.Now().After(end) {
			c.tb.Fatalf("%s: nothing more within %s: %v", why, testenv.Patience, err)
		}
	}
}

// Judge stops the clients. It checks the writes against law 3, and the records
// against law 8.
func (c *Crowd) Judge() {
	c.tb.Helper()
	c.halt()
	c.all.Wait()
	c.tb.Logf("%d terms", c.Terms())
	for _, key := range c.Keys {
		tokens, err := c.Written(c.ctx, key)
		if err != nil || len(tokens) < len(c.writes[key]) || len(tokens) == 0 {
			c.tb.Errorf("%d writes were admitted under %s, and %d were told to be (%v)",
				len(tokens), key, len(c.writes[key]), err)
		}
		if !slices.IsSorted(tokens) {
			c.tb.Errorf("law 3: the writes under %s were admitted with tokens %v", key, tokens)
		}
		for _, broken := range guardtest.Law3(c.writes[key]) {
			c.tb.Errorf("law 3: %s", broken)
		}
		rec, err := c.Stores[0].Get(c.ctx, key)
		if err != nil {
			c.tb.Error(err)
		}
		for _, term := range rec.History {
			if term.Cause == "" {
				c.tb.Errorf("law 8: token %d of %s has no cause", term.Token, key)
			}
		}
	}
}
