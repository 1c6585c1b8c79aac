package turns

import (
	"context"
	"testing"
	"testing/synctest"
)

func TestEveryListenerIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a Acts
		a.Tell("nobody/listens")
		ctx, cancel := context.WithCancel(t.Context())
		one, two := a.Listen(ctx), a.Listen(t.Context())
		a.Tell("jobs/one")
		for _, c := range []<-chan string{one, two} {
			if key := <-c; key != "jobs/one" {
				t.Errorf("told of %q", key)
			}
		}
		cancel()
		synctest.Wait()
		if _, open := <-one; open {
			t.Error("a channel outlives its context")
		}
		if !a.Heard() {
			t.Error("the other listens no more")
		}
		a.End()
		if _, open := <-two; open || a.Heard() {
			t.Error("a channel is open after End")
		}
	})
}

// TestAListenerThatDoesNotReadHoldsUpNobody: its channel drops keys when it is
// full.
func TestAListenerThatDoesNotReadHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a Acts
		c := a.Listen(t.Context())
		for range room + 10 {
			a.Tell("jobs/one")
		}
		if len(c) != room {
			t.Errorf("%d keys wait, want %d", len(c), room)
		}
	})
}
