package sweep

import (
	"context"
	"testing"
	"time"
)

// TestOneAtATimeAndNoneAfterClose: Granted starts no run while one is under
// way, and none after Close.
func TestOneAtATimeAndNoneAfterClose(t *testing.T) {
	begun, ended := make(chan struct{}), 0
	r := Runner{Every: 1, Longest: time.Hour, Do: func(ctx context.Context) {
		close(begun) // a second run would panic here
		<-ctx.Done() // Close ends it
		ended++
	}}
	r.Granted()
	<-begun
	r.Granted()
	r.Close()
	if ended != 1 {
		t.Error("Close has not waited for its end")
	}
	r.Granted()
	r.Close()
}

// TestChance: no runs where there must be none, otherwise one in so many.
func TestChance(t *testing.T) {
	never := Runner{Every: -1, Do: func(context.Context) { t.Error("one was begun") }}
	for range 5000 {
		never.Granted()
	}
	never.Close()
	done := make(chan struct{}, 1)
	usual := Runner{Do: func(context.Context) {
		select {
		case done <- struct{}{}:
		default:
		}
	}}
	defer usual.Close()
	for { // ends unless chance itself is broken
		usual.Granted()
		select {
		case <-done:
			return
		default:
		}
	}
}
