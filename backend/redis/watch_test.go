package redis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/croft-dev/croft/internal/testenv"
	"github.com/croft-dev/croft/store"
)

// deaf is a hook of a client that loses the replies to scripts while it is told to: the server has carried them out.
type deaf struct{ atomic.Bool }

func (*deaf) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (d *deaf) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		err := next(ctx, cmd)
		if d.Load() && cmd.Name() == "evalsha" {
			cmd.SetErr(io.ErrUnexpectedEOF)
			return io.ErrUnexpectedEOF
		}
		return err
	}
}

func (*deaf) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

// inLine waits until so many are in a key's line.
func inLine(t *testing.T, client *goredis.Client, st *Store, key string, want int) {
	t.Helper()
	testenv.Eventually(t, fmt.Sprintf("%d are in line", want), func() error {
		if n := line(t, client, st, key); n != want {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
}

// TestAPlaceNobodyKnowsOfIsGivenUpAsWell: the reply that tells of it was lost, and everybody else would be kept waiting when it is named.
func TestAPlaceNobodyKnowsOfIsGivenUpAsWell(t *testing.T) {
	t.Parallel()
	for name, goes := range map[string]func(w *waiter){
		"ended":  func(w *waiter) { w.end() },
		"closed": func(w *waiter) { _ = w.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testenv.Redis(t)
			client, key := dial(t, server), "place/"+name
			ann, bob := waits(t, server, key, "ann"), waits(t, server, key, "bob")
			if !ann.ask() {
				t.Fatal("ann has not got the key")
			}
			warm(t, bob.Store) // its connection is open
			var lost deaf
			bob.client.(*goredis.Client).AddHook(&lost)
			lost.Store(true)
			if a := one(t.Context(), bob.Store, bob.mine); !errors.Is(a.Err, store.ErrUnknown) {
				t.Fatalf("a request whose reply was lost: %v, want unknown", a.Err)
			}
			lost.Store(false)
			inLine(t, client, ann.Store, key, 1)
			goes(bob)
			inLine(t, client, ann.Store, key, 0)
		})
	}
}

// TestWhoeverComesBackWhileItLeavesDoesNotCountOnAPlace: the store steps out of line some time soon, and is by then back in it.
func TestWhoeverComesBackWhileItLeavesDoesNotCountOnAPlace(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	client, key := dial(t, server), "place/back"
	ann, bob, cat := waits(t, server, key, "ann"), waits(t, server, key, "bob"), waits(t, server, key, "cat")
	if !ann.ask() {
		t.Fatal("ann has not got the key")
	}
	held := make(chan struct{})
	leaves := bob.watch.leaves
	bob.watch.leaves = func(ctx context.Context, names []string) {
		<-held
		leaves(context.WithoutCancel(ctx), names)
	}
	for _, w := range []*waiter{bob, cat} {
		w.wakes("who is not in line hears of everything")
		w.refused()
	}
	bob.end()
	for range bob.woken { // until it is closed: he waits no more
	}
	bob.watchKey()
	bob.refused()
	close(held)
	inLine(t, client, ann.Store, key, 1) // cat
	testenv.Eventually(t, "bob knows that he has no place", func() error {
		bob.watch.mu.Lock()
		defer bob.watch.mu.Unlock()
		if since := bob.watch.topics[bob.names.record(key)].inLine; !since.IsZero() {
			return fmt.Errorf("he counts on one since %s", since)
		}
		return nil
	})
	drained(bob)
	ann.release()
	if !cat.ask() {
		t.Fatal("cat has not got the key")
	}
	bob.wakes("who is not in line hears of everything")
}

// leaving is a context that ends just after somebody has seen, for the second time, that it has not.
type leaving struct {
	context.Context
	seen   *atomic.Int64
	cancel context.CancelFunc
	gone   chan struct{} // closed when whoever waited has gone
}

func (c leaving) Err() error {
	err := c.Context.Err()
	if err == nil && c.seen.Add(1) == 2 {
		c.cancel()
		<-c.gone
	}
	return err
}

// TestAWatchThatEndsAsItBeginsIsNotKept: nobody would ever end it, and its store would stand in line for nobody.
func TestAWatchThatEndsAsItBeginsIsNotKept(t *testing.T) {
	t.Parallel()
	w := waits(t, testenv.Redis(t), "watch/leaving", "ann")
	w.end()
	for range w.woken { // until it is closed
	}
	inner, cancel := context.WithCancel(t.Context())
	defer cancel()
	ctx := leaving{inner, &atomic.Int64{}, cancel, make(chan struct{})}
	done := make(chan struct{})
	go func() {
		_, _ = w.Watch(ctx, w.mine.Key) // it begins by seeing that its context has not ended
		close(ctx.gone)
		close(done)
	}()
	<-done
	cancel()
	testenv.Eventually(t, "nobody watches", func() error {
		if w.watch.watches(w.names.record(w.mine.Key)) {
			return errors.New("somebody does")
		}
		return nil
	})
}
