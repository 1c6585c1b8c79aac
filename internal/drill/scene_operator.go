package drill

import (
	"context"

	"github.com/croft-dev/croft/tenure"
)

// playOperator: an operator takes the key over by hand, as croft takeover does,
// while the worker is awake and busy.
func playOperator(ctx context.Context, s *stage) {
	a, operator := s.cast["A"], s.cast["operator"]
	first, ok := s.begin(ctx)
	if !ok {
		return
	}
	named, expected := 1, "granted, fence raised"
	if s.target == "" {
		named, expected = 0, "granted"
	}
	r := operator.call(ctx, order{
		Do: doTakeOver, Key: s.Key, Target: s.target, Path: s.path, TTL: s.await(), Note: "a drill",
	})
	mine := r.Record
	if !s.step("takeover", "an operator takes the key over", expected,
		granted(r, tenure.Operator, first).then(func() verdict { return raised(r, named) })) {
		return
	}
	s.stale("stale-write", "A writes before the operator has", "refused: the fence was raised",
		s.overwrites(ctx, a, result(2, "A", first.Token), "operator"))
	s.stale("stale-renew", "A renews its lease", "refused, no change",
		notOwned(a.call(ctx, order{Do: doRenew}), tenure.WhyTakenOver).
			then(func() verdict { return s.untouched(ctx, mine) }))
	s.stale("stale-resume", "A asks to resume its lease", "refused, no change",
		notOwned(a.call(ctx, order{Do: doRenew, Resume: true}), tenure.WhyTakenOver).
			then(func() verdict { return s.untouched(ctx, mine) }))
	s.stale("stale-release", "A releases its lease", "refused, no change",
		notOwned(a.call(ctx, order{Do: doRelease}), tenure.WhyTakenOver).
			then(func() verdict { return s.untouched(ctx, mine) }))
	s.step("lease-context", "A's lease, in A's own eyes", "over",
		over(a.call(ctx, s.ends()), "taken_over", "expired", "unreachable"))
	if !s.step("operator-write", "the operator writes", "written",
		s.publishes(ctx, operator, result(3, "operator", mine.Token))) {
		return
	}
	s.stale("late-write", "A writes once more", "refused, the file stays",
		s.overwrites(ctx, a, result(4, "A", first.Token), "operator"))
	s.step("operator-release", "the operator releases the key", "accepted",
		accepted(operator.call(ctx, order{Do: doRelease}), "released"))
}
