// Package operator has tests of operators' acts that backends share: a takeover
// ends the holder's lease at once, and raises the fence.
//
// [Listened] wraps a store. The client calls its Acts on a goroutine of the
// client's own; a buffered channel passes the news to the test.
package operator

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// Announcer is a store that tells its clients of operators' acts.
type Announcer interface {
	store.Store
	store.Announcer
}

// Listened returns the store, and a channel that yields when a client of it has
// begun to listen to acts.
func Listened(st Announcer) (store.Store, <-chan struct{}) {
	l := listened{st, make(chan struct{}, 8)}
	return l, l.begun
}

type listened struct {
	Announcer
	begun chan struct{}
}

func (l listened) Acts(ctx context.Context) (<-chan string, error) {
	keys, err := l.Announcer.Acts(ctx)
	l.begun <- struct{}{}
	return keys, err
}

// TakesOverAtOnce checks that a holder learns of a takeover long before its
// next renewal. The operator has another handle on the same records.
func TakesOverAtOnce(t *testing.T, holders, operators Announcer) {
	t.Helper()
	st, begun := Listened(holders)
	holder := client(t, st, "ann")
	lease, err := holder.Acquire(t.Context(), "jobs/one", &croft.LeaseOptions{TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-begun:
	case <-time.After(testenv.Patience):
		t.Fatal("the holder does not listen")
	}
	start := time.Now()
	if _, err := client(t, operators, "op").Takeover(t.Context(), "jobs/one", croft.ByHand{Note: "stuck"}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-lease.Done():
		t.Logf("the holder knew %s after the operator began", time.Since(start))
	case <-time.After(testenv.Patience): // the next renewal is due after 20 minutes
		t.Fatal("the holder was not told")
	}
	if err := lease.Err(); !errors.Is(err, tenure.ErrNotOwned) {
		t.Errorf("the lease ended by %v", err)
	}
}

// RaisesTheFence checks that a takeover raises the fence at the holder's guard,
// which the operator's store opens by the target in the record.
func RaisesTheFence(t *testing.T, st store.Store, g guard.Guard) {
	t.Helper()
	c := client(t, st, "ann")
	lease, err := c.Acquire(t.Context(), "jobs/one", &croft.LeaseOptions{Guards: []guard.Guard{g}})
	if err != nil {
		t.Fatal(err)
	}
	taken, err := c.Takeover(t.Context(), "jobs/one", croft.ByHand{Note: "the host is down"})
	if err != nil {
		t.Fatal(err)
	}
	if mark, err := g.Mark(t.Context()); err != nil || mark.Token != taken.Deed.Token {
		t.Errorf("the mark is %+v, %v; want token %d", mark, err, taken.Deed.Token)
	}
	if _, err := g.Raise(t.Context(), lease.Stamp()); !errors.Is(err, fence.ErrStale) {
		t.Errorf("the holder at the guard: %v, want stale", err)
	}
}

// client returns a client that the test closes at its end.
func client(t *testing.T, st store.Store, owner string) *croft.Client {
	t.Helper()
	c := croft.New(st, &croft.Options{Owner: owner})
	t.Cleanup(func() { _ = c.Close() })
	return c
}
