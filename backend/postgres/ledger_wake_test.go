package postgres

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/work"
)

// TestNobodyWaitsForAConnectionThatDoesNotOpen: a server says nothing while the
// connection for hints is being opened. Neither claims nor Close wait for it.
func TestNobodyWaitsForAConnectionThatDoesNotOpen(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	pool, err := pgxpool.New(t.Context(), "postgres://croft@"+silent.Addr().String()+"/croft?sslmode=disable&connect_timeout=300")
	if err != nil {
		t.Fatal(err)
	}
	l := NewLedger(pool, nil)
	l.made.Store(true)
	woken := make(chan error, 1)
	go func() {
		_, err := l.Wake(context.Background(), work.Wanted{Queues: []string{"q"}})
		woken <- err
	}()
	conn, err := silent.Accept() // it is on its way
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.listener.listens("q")
		_ = l.Close()
	}()
	select {
	case <-done:
	case <-time.After(testenv.Patience):
		t.Fatal("they wait")
	}
	select {
	case err := <-woken:
		if err == nil || errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("Wake: %v; that says nothing of what the server can do", err)
		}
	case <-time.After(testenv.Patience):
		t.Fatal("Wake goes on though the ledger is closed")
	}
	pool.Close()
}

// TestTheEndOfAnOldConnectionLeavesTheNextAlone: the last waiter has left and
// another has come before the old connection is gone. The end of the old
// connection does not end the new hints.
func TestTheEndOfAnOldConnectionLeavesTheNextAlone(t *testing.T) {
	t.Parallel()
	var n workListener
	open := func() *workConnection {
		k := &workConnection{ready: make(chan struct{}), waiters: map[*workWaiter]struct{}{}}
		k.life, k.cancel = context.WithCancel(context.Background())
		n.connection = k
		return k
	}
	enter := func(k *workConnection) *workWaiter {
		w := &workWaiter{queues: []string{"q"}, c: make(chan struct{}, 1), connection: k}
		k.waiters[w] = struct{}{}
		return w
	}
	old := open()
	n.leave(enter(old))
	if n.connection != nil || old.life.Err() == nil {
		t.Fatal("a connection without waiters goes on")
	}
	next := open()
	w := enter(next)
	n.broke(old)
	if n.connection != next || next.life.Err() != nil {
		t.Fatal("the next connection has ended")
	}
	n.hear("q")
	if _, more := <-w.c; !more {
		t.Error("the hints have ended")
	}
	n.broke(next)
	n.hear("q") // after the end nobody is told, and nothing breaks
	if _, more := <-w.c; more {
		t.Error("the hints go on over a connection that broke")
	}
	n.leave(w)
}
