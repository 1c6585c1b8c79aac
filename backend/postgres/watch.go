package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

const (
	// registered is how long the database keeps a client's position in the
	// queue of a key. A store that still waits renews its position when half of
	// that is over. So a position always lasts longer than the hub relies on
	// it.
	registered = time.Minute
	// enterWait bounds how long entering a queue waits for the lease's row. The
	// hub gives up soon after that, and tries again.
	enterWait = time.Second
)

// Watch returns a channel that receives soon after the key may have changed
// hands: released, granted, or moved by an operator. Renewals wake nobody. Of
// several clients that wait for a key, a release wakes the client that has
// waited longest. It wakes the others a little later, if the key is still free:
// see package internal/turns. Where the server cannot notify, because a
// transaction pooler is in between, the error matches errors.ErrUnsupported.
func (s *Store) Watch(ctx context.Context, key string) (<-chan struct{}, error) {
	if err := fence.CheckKey(key); err != nil {
		return nil, err
	}
	if err := s.listening(ctx); err != nil {
		return nil, err
	}
	return s.hub.Watch(ctx, key)
}

// Acts tells of operators' acts, over the connection that also wakes waiters.
// An act and its notification are committed together. Where the server cannot
// notify, because a transaction pooler is in between, the error matches
// errors.ErrUnsupported.
func (s *Store) Acts(ctx context.Context) (<-chan string, error) {
	if err := s.listening(ctx); err != nil {
		return nil, err
	}
	return s.hub.Listen(ctx, actPrefix)
}

// listening makes sure that the store listens. Its errors are ready for the
// caller.
func (s *Store) listening(ctx context.Context) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	err := s.listener.listening(ctx)
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		err = store.Unknown(explain(ctx, err))
	}
	return err
}

// asking notes which acquires ask for a position in the queue: those of watched
// keys.
func (s *Store) asking(b *batch, todo []int) {
	for _, i := range todo {
		if b.requests[i].Verb != tenure.Acquire || !s.hub.Watches(b.requests[i].Key) {
			continue
		}
		if b.waiters == nil {
			b.waiters = make([]string, len(b.requests))
		}
		b.waiters[i] = s.listener.id
	}
}

// asked tells the hub the outcome of these acquires: granted, or in the queue.
func (s *Store) asked(b *batch) {
	for i := range b.waiters {
		if b.waiters[i] == "" {
			continue
		}
		switch err := b.answers[i].Err; {
		case err == nil:
			s.hub.Granted(b.requests[i].Key)
		case errors.Is(err, tenure.ErrHeld):
			s.hub.Refused(b.requests[i].Key, true)
		}
	}
}

var errLost = errors.New("postgres: the connection that listens has just been lost; ask again")

// Subscribe succeeds if the connection listens, because it hears of all keys.
// Watch and Acts have opened it before. If it breaks, broke ends the
// subscription.
func (l *listener) Subscribe(_ context.Context, key string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.connection == nil || !l.connection.listens {
		return errLost
	}
	l.store.hub.Opened(key)
	return nil
}

// Unsubscribe does nothing: the hub ignores keys that nobody waits for.
func (*listener) Unsubscribe(string) {}

// Enter puts the store into the queue of a key, or keeps its position there.
func (l *listener) Enter(ctx context.Context, key string) (queued bool, err error) {
	s := l.store
	wait, lasts := min(s.waitMillis(), int32(enterWait.Milliseconds())), int32(registered.Milliseconds())
	err = s.send(ctx, func(ctx context.Context) error {
		_, err := s.pool.Exec(ctx, s.sql.wait, wait, l.id, []string{key}, lasts)
		return err
	})
	return err == nil, err
}

// StepOut takes the store out of the queues of keys. If that fails, its
// positions lapse.
func (l *listener) StepOut(ctx context.Context, keys []string) {
	_, _ = l.store.pool.Exec(ctx, l.store.sql.leave, l.id, keys)
}
