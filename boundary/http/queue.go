package httpfence

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/croft-dev/croft/fence"
)

// queue hands out the turns of one resource: one write has the turn, the
// others wait.
//
// Every key has the places in the line that its writes came to. Of the writes
// of one key, the one with the newest token has the first of these places, and
// writes with the same token have theirs as they came. A replaced owner that
// sends without pause therefore cannot keep its successor waiting, and no key
// gets before another by its tokens. When the successor has been admitted,
// refuse sends the older writes away.
type queue struct {
	mu      sync.Mutex
	taken   bool
	waiting []*waiter // in order of arrival
}

// waiter is a write that waits. It is told nil when it has the turn, or why it
// is refused.
type waiter struct {
	stamp fence.Stamp // zero if it has none
	reply chan error
}

// take waits for the turn. Its error is the refusal of the write, errClosing
// if closing is closed first, or the cause for which ctx ended.
func (q *queue) take(ctx context.Context, stamp fence.Stamp, closing <-chan struct{}) error {
	w := &waiter{stamp: stamp, reply: make(chan error, 1)}
	q.mu.Lock()
	if !q.taken {
		q.taken = true
		q.mu.Unlock()
		return nil
	}
	q.waiting = append(q.waiting, w)
	q.mu.Unlock()
	var why error
	select {
	case err := <-w.reply:
		return err
	case <-closing:
		why = errClosing
	case <-ctx.Done():
		why = context.Cause(ctx)
	}
	q.mu.Lock()
	i := slices.Index(q.waiting, w)
	if i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
	q.mu.Unlock()
	if i < 0 && <-w.reply == nil { // the turn came at the same moment
		q.pass()
	}
	return why
}

// try takes the turn if nobody has it.
func (q *queue) try() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.taken {
		return false
	}
	q.taken = true
	return true
}

// pass gives the turn to the next write. The caller has it.
func (q *queue) pass() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		q.taken = false
		return
	}
	next := 0
	for i, w := range q.waiting {
		if outranks(w.stamp, q.waiting[next].stamp) {
			next = i
		}
	}
	w := q.waiting[next]
	// Those of its key that it has overtaken move back by one of their places.
	for i := next - 1; i >= 0; i-- {
		if q.waiting[i].stamp.Key == w.stamp.Key {
			q.waiting[next] = q.waiting[i]
			next = i
		}
	}
	q.waiting = slices.Delete(q.waiting, 0, 1)
	w.reply <- nil
}

// outranked reports whether a write with a newer stamp waits.
func (q *queue) outranked(stamp fence.Stamp) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.ContainsFunc(q.waiting, func(w *waiter) bool { return outranks(w.stamp, stamp) })
}

// refuse sends the waiting writes away that a mark shuts out. The mark must
// have been seen where it is kept.
func (q *queue) refuse(mark fence.Mark) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = slices.DeleteFunc(q.waiting, func(w *waiter) bool {
		err := shutOut(mark, w.stamp)
		if err != nil {
			w.reply <- err
		}
		return err != nil
	})
}

// outranks reports whether stamp a is of a newer owner of b's key.
func outranks(a, b fence.Stamp) bool { return a.Key == b.Key && a.Token > b.Token }

// shutOut is the refusal of a stamp that cannot be admitted while the mark
// stands: nil for one that can, for a repeated number, which the slot judges,
// and for a write without a stamp.
func shutOut(mark fence.Mark, stamp fence.Stamp) error {
	if mark.IsZero() || stamp == (fence.Stamp{}) {
		return nil
	}
	if _, err := mark.Admit(stamp); refused(err) && !errors.Is(err, fence.ErrRepeated) {
		return err
	}
	return nil
}
