package croft

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/tenure"
)

// TestWithoutObserversEventsCostNothing: they add no allocation.
func TestWithoutObserversEventsCostNothing(t *testing.T) {
	c := New(mem.New(nil), nil)
	defer c.Close()
	err := errors.New("x")
	if n := testing.AllocsPerRun(100, func() {
		c.emit(Event{Kind: EventAcquired, Key: "a/b", Token: 1, Cause: tenure.First, TTL: time.Second, Wait: time.Second, Err: err})
	}); n != 0 {
		t.Errorf("an event that nobody hears costs %v allocations", n)
	}
	if c.observed() {
		t.Error("calls of the store are counted though nobody asked")
	}
}

// TestAPanicOfObserveEndsNothing: it must not end the work that is observed.
func TestAPanicOfObserveEndsNothing(t *testing.T) {
	inBubble(t, func(r *rig) {
		var text bytes.Buffer
		c := r.client(nil, &Options{
			Observe: func(Event) { panic("a bug in the observer") },
			Logger:  slog.New(slog.NewTextHandler(&lockedWriter{w: &text}, nil)),
		})
		l := r.acquire(c, "jobs/one", nil)
		time.Sleep(time.Minute) // renewals are observed on another goroutine
		if err := l.Release(r.Context()); err != nil {
			r.Error(err)
		}
		if !strings.Contains(text.String(), "a bug in the observer") {
			r.Errorf("the log does not tell of the panic: %s", text.String())
		}
	})
}

// TestALeaseIsToldBeforeItsCallerHasIt: so its release cannot be told first.
func TestALeaseIsToldBeforeItsCallerHasIt(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		tap.set(slow(20 * time.Millisecond)) // so that no caller calls the store itself
		var told atomic.Bool
		c := r.client(tap, &Options{Observe: func(e Event) {
			if e.Kind == EventAcquired {
				time.Sleep(time.Second)
				told.Store(true)
			}
		}})
		r.acquire(c, "jobs/one", nil)
		if !told.Load() {
			r.Error("the caller had its lease before observers were told")
		}
	})
}
