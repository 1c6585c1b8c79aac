package postgres

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/croft-dev/croft/internal/testenv"
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
		l.ear.listens("q")
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

// TestALineThatEndsLateLeavesTheNextAlone: the last waiter has left and another
// has come before the old connection is gone. The end of the old connection
// does not end the new hints.
func TestALineThatEndsLateLeavesTheNextAlone(t *testing.T) {
	t.Parallel()
	var e ear
	line := func() *earLine {
		n := &earLine{ready: make(chan struct{}), waits: map[*wait]struct{}{}}
		n.life, n.cancel = context.WithCancel(context.Background())
		e.line = n
		return n
	}
	enter := func(n *earLine) *wait {
		w := &wait{queues: []string{"q"}, c: make(chan struct{}, 1), line: n}
		n.waits[w] = struct{}{}
		return w
	}
	old := line()
	e.leave(enter(old))
	if e.line != nil || old.life.Err() == nil {
		t.Fatal("a line that nobody waits at goes on")
	}
	next := line()
	w := enter(next)
	e.broke(old)
	if e.line != next || next.life.Err() != nil {
		t.Fatal("the next line has ended")
	}
	e.hear("q")
	if _, open := <-w.c; !open {
		t.Error("the hints have ended")
	}
	e.broke(next)
	e.hear("q") // after the end nobody is told, and nothing breaks
	if _, open := <-w.c; open {
		t.Error("the hints go on over a line that broke")
	}
	e.leave(w)
}
