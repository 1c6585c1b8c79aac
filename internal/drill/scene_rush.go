package drill

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/croft-dev/croft/tenure"
)

// rushLead is how long before the common moment the contenders are told of it.
const rushLead = 250 * time.Millisecond

// playRush: a lease expires, and many processes ask for it at the same moment.
func playRush(ctx context.Context, s *stage) {
	a := s.cast["A"]
	r := a.call(ctx, s.acquire(0))
	if !s.step("grant", "A takes the lease", "granted", granted(r, tenure.First, tenure.Record{})) {
		return
	}
	_ = s.leave(a, a.dies, "A is killed (SIGKILL)")
	last, f := s.expired(ctx)
	if f != nil {
		s.step("rush", "all ask at once", "one is granted", notDone(f))
		return
	}
	n := s.o.Contenders
	s.say(s.Name, fmt.Sprintf("A's lease is over, %d processes ask for it", n))
	ask := s.acquire(0)
	ask.At = time.Now().Add(rushLead)
	replies := make([]reply, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { replies[i] = s.cast[contender(i)].call(ctx, ask) })
	}
	wg.Wait()
	rec, _, f := s.record(ctx)
	if f != nil {
		s.step("rush", "all ask at once", "one is granted", notDone(f))
		return
	}
	if !s.step("rush", fmt.Sprintf("%d processes ask at the same moment", n), "one granted, the rest refused",
		oneWinner(replies, rec)) {
		return
	}
	for i, r := range replies {
		if r.Err != nil {
			continue
		}
		s.step("winner", contender(i)+" has won: how its term began", "as after any expired lease",
			granted(r, tenure.Expired, last))
		s.step("winner-goes-on", contender(i)+" renews, writes and releases", "all accepted",
			s.goesOn(ctx, s.cast[contender(i)], result(1, contender(i), r.Record.Token)))
	}
}

// expired waits until the deadline of a dead owner has passed on the store's
// clock.
func (s *stage) expired(ctx context.Context) (tenure.Record, *failure) {
	for {
		rec, now, f := s.record(ctx)
		if f != nil || !rec.Alive(now) {
			return rec, f
		}
		select {
		case <-ctx.Done():
			return rec, failureOf(context.Cause(ctx))
		case <-time.After(rec.Deadline.Sub(now) + time.Millisecond):
		}
	}
}
