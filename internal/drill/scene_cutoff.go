package drill

import (
	"context"
	"fmt"
	"time"

	"github.com/croft-dev/croft/tenure"
)

// playCutoff: renewal fails. The store stops answering A, while A can still
// reach the file. A must give up by itself, before the store gives the key to
// another.
func playCutoff(ctx context.Context, s *stage) {
	a, b := s.cast["A"], s.cast["B"]
	first, ok := s.begin(ctx)
	if !ok {
		return
	}
	if !s.step("renewal", "A works on for a while", "renewed by its client", s.renewed(ctx, first)) {
		return
	}
	cut := a.call(ctx, order{Do: doCut})
	if cut.Err != nil {
		s.step("cut", "A is cut off from the store", "cut off", notDone(cut.Err))
		return
	}
	s.note("A", Left)
	s.say(s.Name, "A's store stops answering; A goes on working")

	// A waits for the end of its lease, and B for the key, at the same time.
	last, _, f := s.record(ctx)
	offset, doubt, err := s.offset(ctx)
	if err != nil {
		f = failureOf(err)
	}
	if f != nil {
		s.step("renew-failure", "A's lease, in A's own eyes", "over before the deadline", notDone(f))
		return
	}
	ended := make(chan reply, 1)
	go func() { ended <- a.call(ctx, s.ends()) }()
	s.note("B", Asked)
	r := b.call(ctx, s.acquire(s.await()))
	s.step("renew-failure", "A's lease, in A's own eyes", "over before the deadline",
		inTime(<-ended, last.Deadline.Add(-offset), doubt))
	if !s.step("expiry", "B waits for the key", fmt.Sprintf("granted when A's %s are over", s.o.TTL),
		granted(r, tenure.Expired, last)) {
		return
	}
	s.say(s.Name, "A's lease is over, B has the key")
	s.stale("stale-write", "A, still cut off, writes before B has", "refused: B raised the fence",
		s.overwrites(ctx, a, result(2, "A", first.Token), "B"))
	a.call(ctx, order{Do: doReach})
	s.note("A", Returned)
	s.stale("stale-renew", "A reaches the store again and renews", "refused, B's lease untouched",
		notOwned(a.call(ctx, order{Do: doRenew}), tenure.WhySuperseded).
			then(func() verdict { return s.untouched(ctx, r.Record) }))
	s.step("newer-goes-on", "B renews, writes and releases", "all accepted",
		s.goesOn(ctx, b, result(3, "B", r.Record.Token)))
}

// renewed waits until the owner's client has renewed the lease by itself.
func (s *stage) renewed(ctx context.Context, first tenure.Record) verdict {
	deadline := time.Now().Add(s.await())
	for {
		rec, now, f := s.record(ctx)
		switch {
		case f != nil:
			return notDone(f)
		case rec.Token == first.Token && rec.State == tenure.Held && !rec.Alive(now):
			return tooBusy("%s's own lease ran out", the(first.Owner))
		case rec.Token == first.Token && rec.Renewed.After(first.Renewed):
			return ok("renewed after %s", seconds(rec.Renewed.Sub(first.Renewed)))
		case rec.Token != first.Token || time.Now().After(deadline):
			return failed("not renewed")
		}
		select {
		case <-ctx.Done():
			return notDone(failureOf(context.Cause(ctx)))
		case <-time.After(s.o.TTL / 20):
		}
	}
}
