package drill

import (
	"context"
)

// playCrash: A is killed without a warning, in the middle of a write.
func playCrash(ctx context.Context, s *stage) {
	a, b := s.cast["A"], s.cast["B"]
	first, ok := s.begin(ctx)
	if !ok {
		return
	}
	before, err := content(s.path)
	half := a.call(ctx, order{Do: doBegin, Text: result(2, "A", first.Token)})
	if err != nil {
		half.Err = failureOf(err)
	}
	if half.Err == nil {
		half.Err = s.leave(a, a.dies, "A is killed (SIGKILL) in the middle of a write")
	}
	after, err := content(s.path)
	if err != nil {
		half.Err = failureOf(err)
	}
	if !s.step("kill", "A is killed in mid-write", "the file stays whole",
		accepted(half, "killed").then(func() verdict { return whole(before, after) })) {
		return
	}
	second, ok := s.succeed(ctx)
	if !ok {
		return
	}
	s.step("newer-goes-on", "B renews, writes and releases", "all accepted",
		s.goesOn(ctx, b, result(3, "B", second.Token)))
}

// dies is kill in the form that leave takes.
func (w *worker) dies() error {
	w.kill()
	return nil
}
