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
	"github.com/croft-dev/croft/tenure"
)

const (
	// taken is the message of apply.lua about a key that has been granted.
	taken = "held"
	// idSize is the size of a store's id.
	idSize = 8
	// checkEvery is how often the listener checks its subscriptions.
	checkEvery = 15 * time.Second
)

// newID makes the id of a store among the waiters of a key.
func newID() string {
	id := make([]byte, idSize)
	_, _ = rand.Read(id) // never fails: crypto/rand aborts the program instead
	return string(id)
}

// Watch returns a channel that receives when it is this store's turn to have
// the key. If it is another store's turn and that store does not take the key,
// the channel receives a moment later: see package internal/turns.
//
// All watches of a store share one connection. It reconnects by itself, and
// then wakes all waiters, because messages may have been missed.
func (s *Store) Watch(ctx context.Context, key string) (<-chan struct{}, error) {
	if err := fence.CheckKey(key); err != nil {
		return nil, err
	}
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	return s.hub.Watch(ctx, s.names.record(key))
}

// Acts returns a channel that receives the keys that operators act on. It uses
// the connection that all watches share, and misses acts while that connection
// is down.
func (s *Store) Acts(ctx context.Context) (<-chan string, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	return s.hub.Listen(ctx, s.names.acts())
}

// stood tells the hub whether an acquire was granted, or has put the store into
// the queue of waiters.
func (s *Store) stood(name string, req *tenure.Request, said verdict) {
	switch {
	case req.Verb != tenure.Acquire:
	case said.inQueue():
		s.hub.Refused(name, true)
	case said == done:
		s.hub.Granted(name)
	}
}

// listener is the driver of a store's hub: see package internal/turns. It has
// the store's one pub/sub connection. The channels are the names of records,
// and the channel of operators' acts.
//
// The server may forbid the channel of acts and allow those of keys. It then
// refuses every command that names the channel of acts, even if it also
// subscribes to keys. So the listener asks about that channel in a command of
// its own. It gives the channel up if a check of it has no answer by the time
// of the next check.
type listener struct {
	store *Store
	every time.Duration // checkEvery outside of tests
	acts  string        // the channel of acts
	ended chan struct{}
	done  sync.WaitGroup

	// The hub makes the calls that use these one at a time.
	mayWatch bool // the server allows this user to subscribe to keys
	mayHear  bool // the server allows this user to subscribe to acts

	mu      sync.Mutex
	conn    *goredis.PubSub // opened for the first watch
	checked string          // the channel of the last check, until the server answers
	due     int             // how many channels the server should report
	over    bool            // the listener is closed
}

func newListener(s *Store) *listener {
	return &listener{store: s, every: checkEvery, acts: s.names.acts(), ended: make(chan struct{})}
}

// Subscribe subscribes to a channel. The server confirms it later, by a
// message.
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
	// The end of the caller's context must not matter: go-redis remembers the
	// channel even if this fails, and subscribes when it reconnects.
	ctx = context.WithoutCancel(ctx)
	if err := conn.Subscribe(ctx, name); err != nil {
		_ = conn.Unsubscribe(ctx, name)
		return explain(err)
	}
	return nil
}

// Unsubscribe ends a subscription. If the command cannot be sent, the
// subscription ends with the present connection.
func (l *listener) Unsubscribe(name string) {
	if conn, err := l.open(); err == nil {
		_ = conn.Unsubscribe(context.Background(), name)
	}
}

// ask asks the server whether this user may subscribe, unless the server has
// allowed it before. go-redis hides a refusal, and the watch would wait for
// ever.
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
	*allowed = err == nil // else the server is out of reach: ask again the next time
	return nil
}

// open returns the connection. The first call opens it and starts the two
// goroutines.
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

// hear handles a message. Other programs may publish, too: it ignores acts on
// invalid keys.
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

// check subscribes to one channel once more, because the server then reports
// how many channels the connection has. That matters because a server that is
// busy with a script refuses to subscribe, and go-redis hides it. Without the
// check, a connection made at such a time would stay silent.
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
			if name == l.acts { // prefer this one: it may be forbidden by now
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

// confirm handles the server's confirmation of a subscription. channels is how
// many the connection has.
func (l *listener) confirm(name string, channels int) {
	l.mu.Lock()
	check, due := name == l.checked, l.due
	if check {
		l.checked = ""
	}
	l.mu.Unlock()
	// Tell the hub even if this answers a check. The subscription may never
	// have been confirmed before, or this is the confirmation of a new
	// connection. It costs the waiters of one key a request, or nothing if the
	// check was about acts.
	l.store.hub.Opened(name)
	if check && channels < due {
		l.done.Go(l.resubscribe)
	}
}

// resubscribe subscribes to everything once more: to the keys in one command,
// and to acts in another, which the server may refuse.
func (l *listener) resubscribe() {
	l.store.hub.InOrder(func() {
		conn, err := l.open()
		if err != nil {
			return
		}
		waited, unused := l.store.hub.Keys()
		names := slices.Concat(waited, unused)
		keys := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == l.acts })
		if len(keys) > 0 {
			_ = conn.Subscribe(context.Background(), keys...)
		}
		if len(keys) < len(names) {
			_ = conn.Subscribe(context.Background(), l.acts)
		}
	})
}

// Enter puts the store into the queue of a key, or confirms its position there.
// It reports whether the store is in the queue.
func (l *listener) Enter(ctx context.Context, name string) (queued bool, err error) {
	c := l.inQueue(enter, name)
	runAll(ctx, l.store.client, []*call[*goredis.StringCmd]{c})
	reply := packed{rest: c.cmd.Val()}
	_ = reply.time()
	said := verdict(reply.byte())
	return said.inQueue(), errors.Join(c.cmd.Err(), reply.err)
}

// StepOut takes the store out of the queues of keys.
func (l *listener) StepOut(ctx context.Context, names []string) {
	calls := make([]*call[*goredis.StringCmd], len(names))
	for n, name := range names {
		calls[n] = l.inQueue(leave, name)
	}
	runAll(ctx, l.store.client, calls)
}

// inQueue makes a call with the verb enter or leave.
func (l *listener) inQueue(verb byte, name string) *call[*goredis.StringCmd] {
	s := l.store
	c := newCall(s.apply, goredis.NewStringCmd, 2, 1)
	packing := packing{}
	packing.settings(s.retention, s.at(), s.flags, s.id)
	packing.inQueue(verb)
	c.args = append(c.args, s.names.indexOf(name), name, []byte(packing))
	c.once = true
	return c
}

// close ends the hub, then the connection and its goroutines.
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
