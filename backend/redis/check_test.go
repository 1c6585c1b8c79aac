package redis

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/tenure"
)

// forgetful is a connection that drops one command that subscribes to a
// channel.
type forgetful struct {
	net.Conn
	loses *atomic.Pointer[string]
	lost  chan<- net.Conn
}

func (c forgetful) Write(b []byte) (int, error) {
	name := c.loses.Load()
	if name != nil && bytes.Contains(b, []byte("\r\nsubscribe\r\n")) && bytes.Contains(b, []byte(*name)) &&
		c.loses.CompareAndSwap(name, nil) {
		c.lost <- c.Conn
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// onForgetful makes a store whose connections drop one subscription to a
// channel when told to.
func onForgetful(t *testing.T) (st *Store, lose func(name string), lost <-chan net.Conn) {
	server := testenv.RedisAlone(t)
	var loses atomic.Pointer[string]
	conns := make(chan net.Conn, 1)
	dialer := func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return forgetful{conn, &loses, conns}, err
	}
	st = New(dialWith(t, server, &goredis.Options{Dialer: dialer}), &Options{Prefix: server.Prefix()})
	t.Cleanup(func() { st.Close() })
	st.listener.mayWatch, st.listener.mayHear = true, true // no probes
	return st, func(name string) { loses.Store(&name) }, conns
}

// TestACheckOpensWhatWasNeverConfirmed loses a subscription, as if a busy
// server had refused it. Nobody learns of it until the check.
func TestACheckOpensWhatWasNeverConfirmed(t *testing.T) {
	t.Parallel()
	st, lose, lost := onForgetful(t)
	for _, begin := range []struct {
		name  string
		watch func() error
	}{
		{st.names.record("lone/key"), func() error { _, err := st.Watch(t.Context(), "lone/key"); return err }},
		{st.names.acts(), func() error { _, err := st.Acts(t.Context()); return err }},
	} {
		lose(begin.name)
		begun := make(chan error, 1)
		go func() { begun <- begin.watch() }()
		<-lost
		testenv.Eventually(t, "the watch is open", func() error {
			st.listener.check() // as it does every 15 s
			select {
			case err := <-begun:
				return err
			case <-time.After(100 * time.Millisecond):
				return context.DeadlineExceeded
			}
		})
	}
}

// TestAReconnectDuringACheckWakes has the server confirm the subscription of a
// new connection, and not the check's.
func TestAReconnectDuringACheckWakes(t *testing.T) {
	t.Parallel()
	st, lose, lost := onForgetful(t)
	woken, err := st.Watch(t.Context(), "lone/key")
	if err != nil {
		t.Fatal(err)
	}
	for _, owner := range []string{"ann", "bob"} { // bob is in the queue
		st.Apply(t.Context(), []tenure.Request{{
			Verb: tenure.Acquire, Key: "lone/key", Secret: tenure.NewSecret(), Owner: owner, Instance: "i", TTL: time.Hour,
		}})
	}
	if !st.hub.Queued(st.names.record("lone/key")) {
		t.Fatal("it is not in the queue")
	}
	lose(st.names.record("lone/key"))
	st.listener.check()
	_ = (<-lost).Close()
	select {
	case <-woken:
	case <-time.After(testenv.Patience):
		t.Error("nobody was woken, though messages may have been missed")
	}
}
