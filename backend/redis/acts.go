package redis

import (
	"context"
	"errors"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
)

// The channel of operators' acts is one more topic of the hub. Those who listen
// are its waiters, so the hub keeps its subscription as it keeps others: after
// a reconnect the listeners hear of later acts.
//
// The server may forbid this channel and allow those of keys. It then refuses
// every command that names it, also if that subscribes to keys, too. So the hub
// asks about this channel by itself, and gives it up when a check of it has no
// answer until the next check: the listeners' channels are closed.

var errActsLost = errors.New("redis: the channel of operators' acts was lost; ask again")

// Acts tells of operators' acts on keys of the store, over the connection that
// all watches share. It is a hint: acts are missed while that connection is
// made anew.
func (s *Store) Acts(ctx context.Context) (<-chan string, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	return s.watch.listen(ctx)
}

// listen adds a listener of operators' acts.
func (h *hub) listen(ctx context.Context) (<-chan string, error) {
	t, _, err := h.join(ctx, h.actsName)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.over:
		return nil, store.Unknown(ErrClosed)
	case h.topics[h.actsName] != t:
		return nil, store.Unknown(errActsLost)
	}
	return h.acts.Listen(ctx), nil
}

// hearAct takes a message on the channel of acts. Strangers may publish there,
// too: a message that cannot be a key is ignored.
func (h *hub) hearAct(key string) {
	if fence.CheckKey(key) == nil {
		h.acts.Tell(key)
	}
}

// loseActs ends all listeners of acts, and reports whether there was a topic.
// The caller holds order and mu, and unsubscribes.
func (h *hub) loseActs() bool {
	t := h.topics[h.actsName]
	if t == nil {
		return false
	}
	delete(h.topics, t.name)
	stop(&t.unused)
	if len(t.waiters) > 0 {
		h.watched.Add(-1)
	}
	for c := range t.waiters {
		delete(t.waiters, c)
		close(c)
	}
	if !t.known {
		close(t.confirmed)
	}
	h.acts.End()
	return true
}
