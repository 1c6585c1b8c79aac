package croft

import (
	"context"
	"sync"
	"time"
)

// bound is a context that ends with another, or at a time, or with release. It makes a timer only if somebody waits for its end: many a store looks at the deadline, and at
// whether it is over, and no more.
type bound struct {
	context.Context // the other
	until           time.Time

	mu     sync.Mutex
	made   context.Context // ends as this one does; nil if nobody has asked
	cancel context.CancelFunc
	err    error // why it is over, if that was noticed before one was made
}

func (b *bound) Deadline() (time.Time, bool) {
	if until, is := b.Context.Deadline(); is && until.Before(b.until) {
		return until, true
	}
	return b.until, true
}

func (b *bound) Done() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.made == nil {
		b.made, b.cancel = context.WithDeadline(b.Context, b.until)
		if b.err != nil {
			b.cancel()
		}
	}
	return b.made.Done()
}

func (b *bound) Err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.made != nil:
		return b.made.Err()
	case b.err != nil:
	case b.Context.Err() != nil:
		b.err = b.Context.Err()
	case !time.Now().Before(b.until):
		b.err = context.DeadlineExceeded
	}
	return b.err
}

// Value finds what belongs to the context that was made, too: so contexts that are derived from this one cost no goroutine.
func (b *bound) Value(key any) any {
	b.mu.Lock()
	made := b.made
	b.mu.Unlock()
	if made != nil {
		return made.Value(key)
	}
	return b.Context.Value(key)
}

// release lets go of the context: nobody needs it any more.
func (b *bound) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.made != nil:
		b.cancel()
	case b.err == nil:
		b.err = context.Canceled
	}
}
