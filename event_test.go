package croft

import (
	"errors"
	"testing"
	"time"

	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/tenure"
)

// TestWithoutObserversEventsCostNothing: no allocation is added to what happens anyway.
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
