package drill

import (
	"context"

	"github.com/croft-dev/croft/tenure"
)

// playMessages: the network loses a reply, and delivers a request again long
// after.
func playMessages(ctx context.Context, s *stage) {
	a, b := s.cast["A"], s.cast["B"]
	a.call(ctx, order{Do: doLoseNext})
	r := a.call(ctx, s.acquire(s.await()))
	rec, _, f := s.record(ctx)
	if f != nil {
		r.Err = f
	}
	if !s.step("lost-reply", "A asks, and the reply is lost", "asks again, granted once", once(r, rec)) {
		return
	}
	s.step("held", "B asks for the key", "refused: A holds it", held(b.call(ctx, s.acquire(0)), r.Record))
	if !s.step("release", "A releases it", "accepted", accepted(a.call(ctx, order{Do: doRelease}), "released")) {
		return
	}
	s.stale("late-acquire", "a late copy of A's request arrives", "refused, the key stays free",
		notOwned(a.call(ctx, order{Do: doRepeat}), tenure.WhyReleased).then(func() verdict {
			rec, now, f := s.record(ctx)
			if f != nil {
				return notDone(f)
			}
			return free(rec, r.Record.Token, now)
		}))
	next := b.call(ctx, s.acquire(0))
	if !s.step("next", "B asks again", "granted, higher token", granted(next, tenure.Released, r.Record)) {
		return
	}
	s.stale("later-acquire", "another copy of A's request arrives", "refused, B's lease untouched",
		notOwned(a.call(ctx, order{Do: doRepeat}), tenure.WhyReleased, tenure.WhySuperseded).
			then(func() verdict { return s.untouched(ctx, next.Record) }))
	s.step("late-release", "a late copy of A's release arrives", "no news, B's lease untouched",
		accepted(a.call(ctx, order{Do: doRelease}), "A's had been released").
			then(func() verdict { return s.untouched(ctx, next.Record) }))
	s.step("next-goes-on", "B renews, writes and releases", "all accepted",
		s.goesOn(ctx, b, result(1, "B", next.Record.Token)))
}
