package drill

import (
	"context"
	"fmt"
	"time"

	"github.com/croft-dev/croft/tenure"
)

// playPause is the whole problem in one scene. A worker was presumed dead and
// replaced, and wakes up again with a half-finished result. It does not look at
// its lease, and tries everything that it could do while it held it.
func playPause(ctx context.Context, s *stage) {
	a, b := s.cast["A"], s.cast["B"]
	first, ok := s.begin(ctx)
	if !ok {
		return
	}
	// A works until its lease has been renewed once.
	v := s.renewed(ctx, first).then(func() verdict {
		half := a.call(ctx, order{Do: doBegin, Text: result(2, "A", first.Token)})
		if half.Err == nil {
			half.Err = s.leave(a, a.pause,
				fmt.Sprintf("A is stopped (SIGSTOP) in the middle of a write, for longer than its %s", s.o.TTL))
		}
		return accepted(half, "stopped")
	})
	if !s.step("pause", "A works on, then is stopped in mid-write", "renewed, stopped", v) {
		return
	}
	second, ok := s.succeed(ctx)
	if !ok {
		return
	}
	if !s.step("newer-write", "B writes", "written", s.publishes(ctx, b, result(3, "B", second.Token))) {
		return
	}

	s.say(s.Name, "B has the key and writes; A stays stopped for a while")
	select { // to show that A is not about to find out by itself
	case <-time.After(s.o.TTL / 2):
	case <-ctx.Done():
	}
	woken := time.Now()
	if err := a.wake(); err != nil {
		s.step("wake", "A wakes up", "awake", notDone(failureOf(err)))
		return
	}
	s.note("A", Returned)
	s.say(s.Name, "A wakes up (SIGCONT) and goes on as if nothing had happened")

	// The interrupted write comes first: nothing else has had time to tell A
	// anything.
	r, before, after := s.write(ctx, a, order{Do: doFinish})
	s.stale("half-finished-write", "A wakes up and finishes its write", "refused, the file stays B's",
		bounced(r, before, after, "B"))
	r = a.call(ctx, s.ends())
	s.step("lease-context", "A's lease, in A's own eyes", "over",
		over(r, "expired", "superseded", "unreachable").then(func() verdict {
			return verdict{result: OK, happened: seconds(r.At.Sub(woken)) + " after waking"}
		}))
	s.stale("stale-renew", "A renews its lease", "refused, B's lease untouched",
		notOwned(a.call(ctx, order{Do: doRenew}), tenure.WhySuperseded).
			then(func() verdict { return s.untouched(ctx, second) }))
	s.stale("stale-resume", "A asks to resume its lease", "refused, B's lease untouched",
		notOwned(a.call(ctx, order{Do: doRenew, Resume: true}), tenure.WhySuperseded).
			then(func() verdict { return s.untouched(ctx, second) }))
	s.stale("stale-release", "A releases its lease", "refused, B's lease untouched",
		notOwned(a.call(ctx, order{Do: doRelease}), tenure.WhySuperseded).
			then(func() verdict { return s.untouched(ctx, second) }))
	s.stale("stale-acquire", "A's first request arrives once more", "refused, B's lease untouched",
		notOwned(a.call(ctx, order{Do: doRepeat}), tenure.WhySuperseded).
			then(func() verdict { return s.untouched(ctx, second) }))
	s.stale("stale-write", "A writes something new", "refused, the file stays B's",
		s.overwrites(ctx, a, result(4, "A", first.Token), "B"))
	s.step("newer-goes-on", "B renews, writes and releases", "all accepted",
		s.goesOn(ctx, b, result(5, "B", second.Token)))
}
