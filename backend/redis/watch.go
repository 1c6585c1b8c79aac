package redis

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/turns"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

const (
	// taken is what apply.lua says of a key that has been granted.
	taken = "held"
	// idSize is that of a store's id.
	idSize = 8
	// checkEvery is how often the connection is asked whether it still has its
	// channels.
	checkEvery = 15 * time.Second
)

// newID makes the name of a store among those who wait.
func newID() string {
	id := make([]byte, idSize)
	_, _ = rand.Read(id) // never fails: crypto/rand aborts the program instead
	return string(id)
}

// Watch wakes when it is this store's turn to have the key, and a moment later
// if whoever's turn it was has not taken it: see package internal/turns. All
// watches of a store share one connection. It reconnects by itself, and then
// wakes everybody, because nobody knows what was missed.
func (s *Store) Watch(ctx context.Context, key string) (<-chan struct{}, error) {
	if err := fence.CheckKey(key); err != nil {
		return nil, err
	}
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	c, err := s.hub.Watch(ctx, s.names.record(key))
	if err != nil {
		return nil, cannotWatch(ctx, err)
	}
	return c, nil
}

// Acts tells of operators' acts on keys of the store, over the connection that
// all watches share. It is a hint: acts are missed while that connection is made
// anew.
func (s *Store) Acts(ctx context.Context) (<-chan string, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	keys, err := s.hub.Listen(ctx, s.names.acts())
	if err != nil {
		return nil, cannotWatch(ctx, err)
	}
	return keys, nil
}

// cannotWatch is why a watch did not begin.
func cannotWatch(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		err = over(ctx)
	case errors.Is(err, turns.ErrEnded):
		err = ErrClosed
	}
	return store.Unknown(err)
}

// stood takes note of whether an acquire left the store in line.
func (s *Store) stood(name string, req *tenure.Request, said verdict) {
	switch {
	case req.Verb != tenure.Acquire:
	case said.inLine():
		s.hub.Refused(name, true)
	case said == done:
		s.hub.Granted(name)
	}
}

// listener is the driver of a store's hub. It has the one pub/sub connection,
// whose channels are the records' names, and that of operators' acts.
//
// The server may forbid the channel of acts and allow those of keys. It then
// refuses every command that names it, also if that subscribes to keys, too. So
// the listener asks about it by itself, and gives it up when a check of it has
// no answer until the next check.
type listener struct {
	store *Store
	every time.Duration // checkEvery but in tests
	acts  string        // the channel of acts
	ended chan struct{}
	done  sync.WaitGroup

	// The hub makes one call at a time that uses these.
	mayWatch bool // the server has let this user subscribe to keys,
	mayHear  bool // and to acts

	mu      sync.Mutex
	conn    *goredis.PubSub // opened for the first watch
	checked string          // the channel of the last check that has no answer yet
	due     int             // how many channels there should be
	over    bool
}

func newListener(s *Store) *listener {
	return &listener{store: s, every: checkEvery, acts: s.names.acts(), ended: make(chan struct{})}
}

// Subscribe subscribes to a channel. The server's confirmation comes later, as
// a message.
func (l *listener) Subscribe(ctx context.Context, name string) error {
	allowed := &l.mayWatch
	if name == l.acts {
		allowed = &l.mayHear
	}
	if err := l.ask(ctx, name, allowed); err != nil {
		return err
	}
	conn, err := l.open()
	if err != nil {
		return err
	}
	// Not under the caller's context: go-redis remembers the channel also when
	// it fails, and subscribes when it reconnects.
	ctx = context.WithoutCancel(ctx)
	if err := conn.Subscribe(ctx, name); err != nil {
		_ = conn.Unsubscribe(ctx, name)
		return explain(err)
	}
	return nil
}

// Unsubscribe ends a subscription. If that cannot be sent now, the channel is
// not subscribed to after the next connection.
func (l *listener) Unsubscribe(name string) {
	if conn, err := l.open(); err == nil {
		_ = conn.Unsubscribe(context.Background(), name)
	}
}

// ask asks the server whether this user may subscribe, until it has said so.
// go-redis keeps a refusal to itself, and the watch would wait for ever.
func (l *listener) ask(ctx context.Context, name string, allowed *bool) error {
	if *allowed {
		return nil
	}
	probe := l.store.client.Subscribe(ctx, name)
	defer probe.Close()
	_, err := probe.ReceiveTimeout(ctx, readTimeout)
	if replied(err) {
		return explain(err)
	}
	*allowed = err == nil // otherwise it cannot be reached now, which is another matter
	return nil
}

// open returns the connection. It listens from the first time on.
func (l *listener) open() (*goredis.PubSub, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return nil, turns.ErrEnded
	}
	if l.conn != nil {
		return l.conn, nil
	}
	l.conn = l.store.client.Subscribe(context.Background())
	events := l.conn.ChannelWithSubscriptions(goredis.WithChannelHealthCheckInterval(15 * time.Second))
	l.done.Go(func() {
		for event := range events {
			switch e := event.(type) {
			case *goredis.Subscription:
				if e.Kind == "subscribe" {
					l.confirm(e.Channel, e.Count)
				}
			case *goredis.Message:
				l.hear(e.Channel, e.Payload)
			}
		}
	})
	l.done.Go(func() {
		for {
			select {
			case <-time.After(l.every):
				l.check()
			case <-l.ended:
				return
			}
		}
	})
	return l.conn, nil
}

// hear takes a message. Strangers may publish, too: on the channel of acts, what
// cannot be a key is ignored.
func (l *listener) hear(name, word string) {
	hub := l.store.hub
	switch {
	case name == l.acts:
		if fence.CheckKey(word) == nil {
			hub.Acted(name, word)
		}
	case word == "":
		hub.Changed(name)
	case word == taken:
		hub.Taken(name)
	default:
		hub.Freed(name, word == l.store.id)
	}
}

// check subscribes to a channel once more, because the server then says how many
// the connection has. A server that is busy with a script refuses to subscribe;
// go-redis keeps that to itself, and a connection made at such a time would be
// silent for as long as it lasts.
func (l *listener) check() {
	l.store.hub.InOrder(func() {
		l.mu.Lock()
		lost := l.checked == l.acts // the last check had no answer
		conn := l.conn
		l.mu.Unlock()
		if lost {
			l.store.hub.Lose(l.acts)
			l.mayHear = false
			_ = conn.Unsubscribe(context.Background(), l.acts)
		}
		waited, unused := l.store.hub.Keys()
		name := ""
		for _, name = range waited {
			if name == l.acts { // any will do, and this one may be forbidden by now
				break
			}
		}
		l.mu.Lock()
		l.checked, l.due = name, len(waited)+len(unused)
		l.mu.Unlock()
		if name != "" {
			_ = conn.Subscribe(context.Background(), name) // the next check tries again
		}
	})
}

// confirm notes that the server has begun to send, on so many channels.
func (l *listener) confirm(name string, channels int) {
	l.mu.Lock()
	check, due := name == l.checked, l.due
	if check {
		l.checked = ""
	}
	l.mu.Unlock()
	// Also if the check finds all channels: the subscription may never have been
	// confirmed, or this is a new connection's and not the check's. It costs the
	// waiters of one key a request, and none while acts are listened to.
	l.store.hub.Opened(name)
	if check && channels < due {
		l.done.Go(l.resubscribe)
	}
}

// resubscribe subscribes to everything once more.
func (l *listener) resubscribe() {
	l.store.hub.InOrder(func() {
		waited, unused := l.store.hub.Keys()
		conn, err := l.open()
		if names := slices.Concat(waited, unused); err == nil && len(names) > 0 {
			_ = conn.Subscribe(context.Background(), names...)
		}
	})
}

// Enter puts the store into the line of a key, or keeps its place there.
func (l *listener) Enter(ctx context.Context, name string) (placed bool, err error) {
	c := l.inLine(enter, name)
	runAll(ctx, l.store.client, []*call[*goredis.StringCmd]{c})
	reply := packed{rest: c.cmd.Val()}
	_ = reply.time()
	said := verdict(reply.byte())
	return said.inLine(), errors.Join(c.cmd.Err(), reply.err)
}

// StepOut takes the store out of the lines of keys.
func (l *listener) StepOut(ctx context.Context, names []string) {
	calls := make([]*call[*goredis.StringCmd], len(names))
	for n, name := range names {
		calls[n] = l.inLine(leave, name)
	}
	runAll(ctx, l.store.client, calls)
}

// inLine makes a call that only moves the store in a line.
func (l *listener) inLine(verb byte, name string) *call[*goredis.StringCmd] {
	s := l.store
	c := newCall(s.apply, goredis.NewStringCmd, 2, 1)
	packing := packing{}
	packing.settings(s.retention, s.at(), s.flags, s.id)
	packing.inLine(verb)
	c.args = append(c.args, s.names.indexOf(name), name, []byte(packing))
	c.once = true
	return c
}

// close ends the connection, after the hub has ended.
func (l *listener) close() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	l.store.hub.End(ctx)
	close(l.ended)
	l.mu.Lock()
	l.over = true
	conn := l.conn
	l.mu.Unlock()
	if conn != nil {
		_ = conn.Close()
	}
	l.done.Wait()
}
