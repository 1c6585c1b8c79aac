package raise

import (
	"context"
	"testing"
)

// TestAnAnswerAtTheDeadlineCounts: a guard that was raised just in time does
// not count as hanging.
func TestAnAnswerAtTheDeadlineCounts(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	const there = 20
	answers := make(chan int, there)
	for range there {
		answers <- 1
	}
	got := 0
	gather(ctx, there+1, answers, func(n int) { got += n })
	if got != there {
		t.Errorf("%d answers of %d count", got, there)
	}
}
