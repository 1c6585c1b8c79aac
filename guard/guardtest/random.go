package guardtest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/croft-dev/croft/fence"
)

// random takes random steps through the guard and through the law, and compares
// the two after each step. There are few keys, tokens, grants and numbers, so
// that every row of the law is met often.
func random(t testing.TB, h Harness) {
	for seed := range h.many(24, 4) {
		walk(t, h, seed)
		if t.Failed() {
			return // the next would most likely say the same
		}
	}
}

func walk(t testing.TB, h Harness, seed uint64) {
	t.Helper()
	dice := rand.New(rand.NewPCG(seed, 0))
	p := newProbe(t, h)
	open := []*probe{p, p.another()}
	now := state{}
	var steps []string
	fail := func(format string, args ...any) {
		t.Helper()
		t.Fatalf("walk %d: %s\nsteps so far:\n  %s", seed, fmt.Sprintf(format, args...), strings.Join(steps, "\n  "))
	}
	base := fence.Token(1)
	for n := range 30 {
		if dice.IntN(8) == 0 {
			base += 3 // newer owners appear, older ones are still there
		}
		s := fence.Stamp{
			Key:   []string{usual, usual, usual, other}[dice.IntN(4)],
			Token: base + fence.Token(dice.IntN(3)),
			Grant: grant(1 + dice.IntN(2)),
			Seq:   uint64(dice.IntN(4)),
		}
		on := open[dice.IntN(len(open))]
		var err, law error
		var next fence.Mark
		switch roll := dice.IntN(20); {
		case roll < 11:
			body := fmt.Sprintf("walk %d step %d with %s", seed, n, s)
			steps = append(steps, "write "+s.String())
			next, law = now.mark.Admit(s)
			err = on.Write(on.ctx, s, []byte(body))
			if law == nil {
				now.content, now.written = []byte(body), true
			}
		case roll < 17:
			steps = append(steps, "raise "+s.String())
			next, law = now.mark.Raise(s)
			_, err = on.Raise(on.ctx, s)
		case roll < 18:
			steps = append(steps, "rekey "+s.Key)
			next, law = now.mark.Rekey(s.Key)
			_, err = on.Rekey(on.ctx, s.Key, "ann", fmt.Sprintf("step %d", n))
		default:
			steps = append(steps, "reopen")
			i := dice.IntN(len(open))
			if err = open[i].Close(); err == nil {
				open[i] = p.another()
			}
			next = now.mark
		}
		now.mark = next
		if d := differs(err, law); d != "" {
			fail("the last step was %s", d)
		}
		got := open[dice.IntN(len(open))].state()
		if got.mark != now.mark {
			fail("the mark is %+v, the law's %+v", got.mark, now.mark)
		}
		if got.written != now.written || string(got.content) != string(now.content) {
			fail("the content is %s, want %s", describe(got), describe(now))
		}
	}
}
