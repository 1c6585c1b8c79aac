package guardtest

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
)

func fresh(t testing.TB, h Harness) {
	p := newProbe(t, h)
	p.holds(state{}, "fresh")
	if p.Target() == "" {
		t.Error("the target has no name")
	}
	if a, b := p.Target(), p.another().Target(); a != b {
		t.Errorf("two handles name their one target %q and %q", a, b)
	}
}

func contents(t testing.TB, h Harness) {
	p := newProbe(t, h)
	size := h.Large
	if size == 0 {
		size = 4<<20 + 1
	}
	large := make([]byte, size)
	for i := range large {
		large[i] = byte(i ^ i>>8 ^ i>>16)
	}
	for i, payload := range [][]byte{
		{}, []byte("x"), []byte("plain text\n"), {0, 1, 2, 0xff, '\r', '\n', 0}, large, []byte("short again"), {},
	} {
		s := stamp(fence.Token(10+i), i, 0)
		if err := p.Write(p.ctx, s, payload); err != nil {
			t.Fatalf("writing %d bytes: %v", len(payload), err)
		}
		p.holds(state{s.Mark(), payload, true}, fmt.Sprintf("after writing %d bytes", len(payload)))
	}
	// After the write the caller may change its payload.
	mine := []byte("before")
	if err := p.Write(p.ctx, stamp(30, 1, 0), mine); err != nil {
		t.Fatal(err)
	}
	copy(mine, "AFTER!")
	if got := p.state(); !bytes.Equal(got.content, []byte("before")) {
		t.Errorf("changing the payload after the write changed the content to %q", got.content)
	}
}

func reopened(t testing.TB, h Harness) {
	p := newProbe(t, h)
	p.mustWrite(stamp(10, 1, 4), "ten")
	before := p.state()
	if err := p.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	p = p.another()
	p.holds(before, "after closing and opening again")
	err := p.Write(p.ctx, stamp(9, 2, 0), []byte("nine"))
	_, law := before.mark.Admit(stamp(9, 2, 0))
	if d := differs(err, law); d != "" {
		t.Errorf("an older owner's write through a new handle: %s", d)
	}
	p.holds(before, "after an older owner's write through a new handle")

	p.mustRaise(stamp(12, 3, 0))
	if err := p.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	p = p.another()
	p.holds(state{stamp(12, 3, 0).Mark(), before.content, true}, "after a raise, closing and opening again")
}

func shared(t testing.TB, h Harness) {
	a := newProbe(t, h)
	b, c := a.another(), a.another()
	a.mustWrite(stamp(10, 1, 0), "a")
	b.holds(state{stamp(10, 1, 0).Mark(), []byte("a"), true}, "another handle, after a write")
	b.mustRaise(stamp(11, 2, 0))
	c.holds(state{stamp(11, 2, 0).Mark(), []byte("a"), true}, "another handle, after a raise")
	_, law := c.mark().Admit(stamp(10, 1, 0))
	if d := differs(a.Write(a.ctx, stamp(10, 1, 0), []byte("late")), law); d != "" {
		t.Errorf("the first handle's write after another's raise: %s", d)
	}
	c.mustWrite(stamp(11, 2, 0), "c")
	a.holds(state{stamp(11, 2, 0).Mark(), []byte("c"), true}, "first handle, after another's write")
	if err := b.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	a.mustWrite(stamp(12, 1, 0), "a again")
	c.holds(state{stamp(12, 1, 0).Mark(), []byte("a again"), true}, "after closing one handle of three")
}

// counted checks the count of a guard that has one. It counts admitted writes,
// through any handle, and nothing else.
func counted(t testing.TB, h Harness) {
	p := newProbe(t, h)
	if _, ok := p.Guard.(guard.Counter); !ok {
		return
	}
	want := func(writes uint64, after string) time.Time {
		t.Helper()
		counter, ok := p.another().Guard.(guard.Counter)
		if !ok {
			t.Fatal("another handle does not count")
		}
		counts, err := counter.Counts(p.ctx)
		if err != nil || counts.Writes != writes {
			t.Errorf("%s: %d writes are counted, %v; want %d", after, counts.Writes, err, writes)
		}
		return counts.Changed
	}
	if at := want(0, "fresh"); !at.IsZero() {
		t.Errorf("a fresh resource has changed at %s", at)
	}
	p.mustRaise(stamp(9, 1, 0))
	raised := want(0, "after a raise")
	p.mustWrite(stamp(10, 1, 4), "ten")
	p.mustWrite(stamp(10, 1, 5), "ten again")
	written := want(2, "after two writes")
	if raised.IsZero() || written.Before(raised) {
		t.Errorf("changed at %s by a raise, and then at %s by a write", raised, written)
	}
	for _, s := range []fence.Stamp{stamp(9, 1, 0), stamp(10, 2, 0), stamp(10, 1, 5)} {
		if err := p.Write(p.ctx, s, []byte("late")); err == nil {
			t.Errorf("%s is admitted", s)
		}
	}
	if at := want(2, "after refused writes"); !at.Equal(written) {
		t.Errorf("refused writes have changed it at %s", at)
	}
	p.mustWrite(stamp(10, 1, 0), "unnumbered")
	p.mustRekey(other)
	next := stamp(11, 3, 0)
	next.Key = other
	p.mustWrite(next, "under another key")
	want(4, "after a rekey")
}
