package guardtest

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
)

func cancelled(t testing.TB, h Harness) {
	p := newProbe(t, h)
	try := func(when string) {
		before := p.state()
		ctx, cancel := context.WithCancel(p.ctx)
		cancel()
		if err := p.Write(ctx, stamp(20, 2, 0), []byte("never")); !errors.Is(err, context.Canceled) {
			t.Errorf("write under a cancelled context: %v, want context.Canceled", err)
		}
		if _, err := p.Raise(ctx, stamp(20, 2, 0)); !errors.Is(err, context.Canceled) {
			t.Errorf("raise under a cancelled context: %v, want context.Canceled", err)
		}
		if _, err := p.Rekey(ctx, other, "ann", "why"); !errors.Is(err, context.Canceled) {
			t.Errorf("rekey under a cancelled context: %v, want context.Canceled", err)
		}
		p.holds(before, when+", after cancelled calls")
	}
	try("fresh")
	p.mustWrite(stamp(10, 1, 0), "content")
	try("written")
}

// script is a reader that takes its steps one by one. A step yields bytes or an
// error.
type script []func() ([]byte, error)

func (s *script) Read(buf []byte) (int, error) {
	if len(*s) == 0 {
		return 0, io.EOF
	}
	step := (*s)[0]
	*s = (*s)[1:]
	data, err := step()
	return copy(buf, data), err
}

func yields(text string) func() ([]byte, error) {
	return func() ([]byte, error) { return []byte(text), nil }
}

// streams makes a probe of a guard that can write from a reader. It returns nil
// if the guard cannot.
func streams(t testing.TB, h Harness) *probe {
	if p := newProbe(t, h); p.Stream != nil {
		return p
	}
	return nil
}

func brokenReader(t testing.TB, h Harness) {
	p := streams(t, h)
	if p == nil {
		return
	}
	broken := errors.New("the source broke")
	try := func(when string) {
		before := p.state()
		for name, r := range map[string]script{
			"at once":            {func() ([]byte, error) { return nil, broken }},
			"in the middle":      {yields("half of it"), func() ([]byte, error) { return nil, broken }},
			"with its last part": {yields("half"), func() ([]byte, error) { return []byte("other half"), broken }},
		} {
			if err := p.Stream(p.ctx, stamp(20, 2, 0), &r); !errors.Is(err, broken) {
				t.Errorf("a reader that breaks %s: %v, want its own error", name, err)
			}
			p.holds(before, when+", after a reader that broke "+name)
		}
	}
	try("fresh")
	p.mustWrite(stamp(10, 1, 0), "content")
	try("written")
	whole := script{yields("in "), yields(""), yields("parts"), func() ([]byte, error) { return []byte("."), io.EOF }}
	if err := p.Stream(p.ctx, stamp(20, 2, 0), &whole); err != nil {
		t.Errorf("a reader that yields its content in parts: %v", err)
	}
	p.holds(state{stamp(20, 2, 0).Mark(), []byte("in parts."), true}, "after a write in parts")
}

// overtaken checks that the guard decides after it has read everything. A write
// that begins in time and ends too late is too late.
func overtaken(t testing.TB, h Harness) {
	older := streams(t, h)
	if older == nil {
		return
	}
	newer := older.another()
	older.mustWrite(stamp(10, 1, 0), "content")
	raise := func(s fence.Stamp) error { _, err := newer.Raise(newer.ctx, s); return err }
	write := func(s fence.Stamp) error { return newer.Write(newer.ctx, s, []byte("of the newer owner")) }
	for _, c := range []struct {
		late, next fence.Stamp
		overtake   func(fence.Stamp) error
		content    string
	}{
		{stamp(20, 2, 0), stamp(21, 3, 0), raise, "content"},
		{stamp(30, 2, 0), stamp(31, 3, 0), write, "of the newer owner"},
	} {
		read := false
		slow := script{yields("a long "), func() ([]byte, error) {
			read = true
			if err := c.overtake(c.next); err != nil {
				t.Errorf("overtaking while another write reads its content: %v", err)
			}
			return []byte("answer"), nil
		}}
		err := older.Stream(older.ctx, c.late, &slow)
		if !read {
			t.Fatalf("the write ended (%v) without reading all of its content", err)
		}
		_, law := c.next.Mark().Admit(c.late)
		if d := differs(err, law); d != "" {
			t.Errorf("a write overtaken while its content was read: %s", d)
		}
		older.holds(state{c.next.Mark(), []byte(c.content), true}, "after a write overtaken while reading")
	}
}

// patience is the longest time that a reader hangs. A guard that waits for the
// reader then fails instead of hanging.
var patience = 10 * time.Second

func cancelledWhileReading(t testing.TB, h Harness) {
	p := streams(t, h)
	if p == nil {
		return
	}
	p.mustWrite(stamp(10, 1, 0), "content")
	before := p.state()
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	hang := make(chan struct{})
	defer close(hang)
	stuck := script{yields("a part"), func() ([]byte, error) {
		cancel()
		select {
		case <-hang:
		case <-time.After(patience):
		}
		return nil, io.EOF
	}}
	if err := p.Stream(ctx, stamp(20, 2, 0), &stuck); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled while the reader hangs: %v, want context.Canceled", err)
	}
	p.holds(before, "after a write cancelled while its reader hung")
}
