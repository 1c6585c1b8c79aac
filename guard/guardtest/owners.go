package guardtest

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
)

// raisedBeforeReading is a takeover. The new owner raises the mark and reads.
// Then the old owner wakes up and writes.
func raisedBeforeReading(t testing.TB, h Harness) {
	older := newProbe(t, h)
	older.mustWrite(stamp(10, 1, 0), "checkpoint 1")
	newer := older.another()
	newer.mustRaise(stamp(11, 2, 0))
	read := newer.state()

	_, law := read.mark.Admit(stamp(10, 1, 0))
	if d := differs(older.Write(older.ctx, stamp(10, 1, 0), []byte("checkpoint 2")), law); d != "" {
		t.Errorf("the old owner's write after the raise: %s", d)
	}
	if _, err := older.Raise(older.ctx, stamp(10, 1, 0)); differs(err, law) != "" {
		t.Errorf("the old owner's raise after the raise: %s", differs(err, law))
	}
	newer.holds(read, "what the new owner read, after the old one tried")
	newer.mustWrite(stamp(11, 2, 0), "checkpoint 1, continued")
	newer.holds(state{read.mark, []byte("checkpoint 1, continued"), true}, "after the new owner's write")
}

func raiseWritesNothing(t testing.TB, h Harness) {
	p := newProbe(t, h)
	p.mustRaise(stamp(10, 1, 0))
	p.holds(state{mark: stamp(10, 1, 0).Mark()}, "after raising a resource without content")
	p.mustWrite(stamp(10, 1, 0), "content")
	p.mustRaise(stamp(11, 2, 0))
	p.holds(state{stamp(11, 2, 0).Mark(), []byte("content"), true}, "after raising a resource with content")
}

func raisedTwice(t testing.TB, h Harness) {
	for _, seq := range []uint64{0, 7} {
		p := newProbe(t, h)
		p.mustRaise(stamp(10, 1, seq))
		once := p.state()
		p.mustRaise(stamp(10, 1, seq))
		p.another().mustRaise(stamp(10, 1, seq))
		p.holds(once, "after raising again")
	}
	// An unnumbered raise at a numbered mark of the same grant: the number
	// stays, and the answer shows it.
	p := newProbe(t, h)
	p.mustWrite(stamp(10, 1, 5), "five")
	p.mustRaise(stamp(10, 1, 0))
	p.holds(state{stamp(10, 1, 5).Mark(), []byte("five"), true}, "after an unnumbered raise at a numbered mark")
}

func numbered(t testing.TB, h Harness) {
	p := newProbe(t, h)
	now := state{}
	try := func(s fence.Stamp, payload string) {
		t.Helper()
		next, law := now.mark.Admit(s)
		if d := differs(p.Write(p.ctx, s, []byte(payload)), law); d != "" {
			t.Errorf("after %+v, write number %d: %s", now.mark, s.Seq, d)
		}
		if now.mark = next; law == nil {
			now.content, now.written = []byte(payload), true
		}
		p.holds(now, payload)
	}
	try(stamp(10, 1, 2), "two")
	try(stamp(10, 1, 2), "two, repeated")
	try(stamp(10, 1, 1), "one, late")
	try(stamp(10, 1, 5), "five")
	try(stamp(10, 1, 0), "unnumbered after numbered")
	try(stamp(10, 1, 5), "five, repeated after an unnumbered write")
	try(stamp(10, 1, 6), "six")
	try(stamp(11, 2, 1), "the next owner begins again at one")
	try(stamp(11, 2, 1), "and may not repeat it either")
	try(stamp(10, 1, 7), "seven, of the old owner")
	try(stamp(11, 2, 1<<64-1), "the last number there is")
	try(stamp(11, 2, 2), "two, late")
	try(stamp(11, 2, 0), "unnumbered at last")
}

func rekeyed(t testing.TB, h Harness) {
	// A resource without a mark can be given a key.
	p := newProbe(t, h)
	if r, err := p.Rekeyed(p.ctx); err != nil || r != (guard.Rekeyed{}) {
		t.Errorf("before any rekey, Rekeyed answered %+v, %v; want zero", r, err)
	}
	p.mustRekey(usual)
	p.mustKeep(guard.Rekeyed{Actor: "ann@example", Note: "moved to another job"})
	p.holds(state{mark: fence.Mark{Key: usual}}, "after rekeying a fresh resource")
	p.mustWrite(stamp(1, 1, 0), "the lowest token there is")

	p = newProbe(t, h)
	p.mustWrite(stamp(10, 1, 5), "content")
	before := p.state()
	by := p.another()
	by.mustRekey(other)
	floor := state{fence.Mark{Key: other, Token: 10}, before.content, true}
	p.holds(floor, "after a rekey through another handle")
	for _, s := range []fence.Stamp{
		stamp(10, 1, 6), // the holder of the old key
		stamp(99, 2, 0), // a later holder of the old key
		{Key: other, Token: 10, Grant: grant(1), Seq: 6},
		{Key: other, Token: 10, Grant: grant(2)}, // not above the floor
		{Key: other, Token: 9, Grant: grant(2)},
	} {
		_, law := floor.mark.Admit(s)
		if d := differs(p.Write(p.ctx, s, []byte("never")), law); d != "" {
			t.Errorf("after a rekey to %q, write with %s: %s", other, s, d)
		}
		p.holds(floor, "after a refused write with "+s.String())
	}
	s := fence.Stamp{Key: other, Token: 11, Grant: grant(2), Seq: 1}
	p.mustWrite(s, "of the new key")
	p.holds(state{s.Mark(), []byte("of the new key"), true}, "after a write of the new key")

	p.mustKeep(guard.Rekeyed{From: usual, Actor: "ann@example", Note: "moved to another job"})
	p.another().mustKeep(guard.Rekeyed{From: usual, Actor: "ann@example", Note: "moved to another job"})
}

// bound is held while a test changes how far ahead a token may lie. This
// setting is the same for all guards of a process.
var bound sync.Mutex

// reset checks that an operator can take back a mark that shuts out every
// owner.
func reset(t testing.TB, h Harness) {
	p := newProbe(t, h)
	present := fence.Token(time.Now().UnixMicro())
	far := stamp(fence.Token(time.Now().Add(2*fence.DefaultMaxAhead).UnixMicro()), 1, 3)
	func() {
		bound.Lock()
		defer bound.Unlock()
		fence.SetMaxAhead(3 * fence.DefaultMaxAhead)
		defer fence.SetMaxAhead(0)
		p.mustWrite(far, "content")
	}()
	if err := p.Write(p.ctx, stamp(present, 2, 0), []byte("never")); !errors.Is(err, fence.ErrStale) {
		t.Fatalf("write below a made-up mark: %v, want it refused as stale", err)
	}
	before := p.state()
	for _, args := range [][2]string{{"", "why"}, {"ann", ""}} {
		if _, err := p.Reset(p.ctx, present, args[0], args[1]); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("reset by %q because of %q: %v, want ErrInvalid", args[0], args[1], err)
		}
	}
	if _, err := p.Reset(p.ctx, fence.MaxToken, "ann", "why"); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("reset to another made-up token: %v, want ErrInvalid", err)
	}
	p.holds(before, "after resets that were refused")

	mark, err := p.Reset(p.ctx, present, "ann@example", "it was forged")
	want := before
	want.mark = fence.Mark{Key: usual, Token: present}
	if err != nil || mark != want.mark {
		t.Fatalf("reset answered %+v, %v; want %+v", mark, err, want.mark)
	}
	p.holds(want, "after a reset")
	p.mustKeep(guard.Rekeyed{From: usual, Actor: "ann@example", Note: "it was forged"})
	if err := p.Write(p.ctx, stamp(present, 2, 0), []byte("never")); !errors.Is(err, fence.ErrStale) {
		t.Errorf("an owner at the floor: %v, want it refused as stale", err)
	}
	p.mustWrite(stamp(present+1, 2, 0), "of the next owner")
	before = p.state()
	if _, err := p.Reset(p.ctx, present, "ann@example", "it was forged"); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("reset of a mark that was not made up: %v, want ErrInvalid", err)
	}
	p.holds(before, "after a reset of a mark that was not made up")
}

func rekeyedBadly(t testing.TB, h Harness) {
	p := newProbe(t, h)
	try := func(when string) {
		before := p.state()
		for _, args := range [][3]string{
			{"", "ann", "why"},
			{"a//b", "ann", "why"},
			{other, "", "why"},
			{other, "ann", ""},
			{other, "ann", "  "},
			{other, "ann", strings.Repeat("x", guard.MaxNote+1)},
			{other, "ann", "two\nlines"},
		} {
			if _, err := p.Rekey(p.ctx, args[0], args[1], args[2]); !errors.Is(err, fence.ErrInvalid) {
				t.Errorf("rekey to %.20q by %q because %.20q: %v, want an error that matches fence.ErrInvalid",
					args[0], args[1], args[2], err)
			}
		}
		p.holds(before, when+", after refused rekeys")
	}
	try("fresh")
	p.mustWrite(stamp(10, 1, 0), "content")
	try("written")
	// The longest allowed actor and note fit beside the longest keys.
	long := strings.Repeat("k", fence.MaxKey)
	p.mustRekey(long)
	if _, err := p.Rekey(p.ctx, strings.Repeat("ü", fence.MaxKey/2),
		strings.Repeat("a", guard.MaxActor), strings.Repeat("ß", guard.MaxNote/2)); err != nil {
		t.Errorf("the longest rekey allowed: %v", err)
	}
}
