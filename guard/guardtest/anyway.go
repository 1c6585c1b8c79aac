package guardtest

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
)

// anyway is the type of guard.WriteAnyway.
type anyway func(
	ctx context.Context, a guard.Artifact, s fence.Stamp, r io.Reader, current guard.Current,
) (guard.Receipt, error, error)

func writtenAnyway(t testing.TB, h Harness) { writtenAnywayBy(t, h, guard.WriteAnyway) }

// writtenAnywayBy checks that a write which the law refuses is made, and that
// the mark stands as before.
func writtenAnywayBy(t testing.TB, h Harness, write anyway) {
	p := newProbe(t, h)
	a, ok := p.Guard.(guard.Artifact)
	if !ok {
		return
	}
	try := func(s fence.Stamp, content string) {
		t.Helper()
		before := p.mark()
		next, law := before.Admit(s)
		receipt, refusal, err := write(p.ctx, a, s, strings.NewReader(content), nil)
		if err != nil {
			t.Fatalf("%s at %+v: %v; want it written", s, before, err)
		}
		if d := differs(refusal, law); d != "" {
			t.Errorf("%s at %+v would have been refused otherwise: %s", s, before, d)
		}
		if receipt.Mark != next {
			t.Errorf("%s at %+v: the receipt has the mark %+v, want %+v", s, before, receipt.Mark, next)
		}
		p.holds(state{next, []byte(content), true}, "after "+s.String()+" was written anyway")
	}
	try(stamp(10, 1, 4), "the first")
	try(stamp(9, 2, 0), "of an older owner")
	try(stamp(10, 2, 0), "of another grant")
	try(stamp(10, 1, 4), "repeated")
	try(stamp(10, 1, 5), "in order")
	wrong := stamp(11, 3, 0)
	wrong.Key = other
	try(wrong, "for another key")
	try(stamp(12, 3, 0), "of a newer owner")
	// The fence has stayed up for everybody else.
	before := p.state()
	_, law := before.mark.Admit(stamp(11, 1, 0))
	if d := differs(p.Write(p.ctx, stamp(11, 1, 0), []byte("late")), law); d != "" {
		t.Errorf("an older owner's write after that: %s", d)
	}
	p.holds(before, "after an older owner's write")
	// An operator's floor has no owner in whose name anything could be written.
	p.mustRekey(other)
	before = p.state()
	if _, refusal, err := write(p.ctx, a, wrong, strings.NewReader("x"), nil); err == nil || refusal == nil {
		t.Errorf("a stale write at a floor: refusal %v, error %v; want both", refusal, err)
	}
	p.holds(before, "after a stale write at a floor")
}

// overtakenAnyway checks that a write which is overtaken by a newer owner is
// made under the newer owner's mark.
func overtakenAnyway(t testing.TB, h Harness) {
	older := newProbe(t, h)
	a, ok := older.Guard.(guard.Artifact)
	if !ok {
		return
	}
	newer := older.another()
	newer.mustWrite(stamp(10, 1, 0), "content")
	overtaking := &overtaker{Artifact: a, overtake: func() { newer.mustWrite(stamp(20, 2, 0), "of the newer owner") }}
	receipt, refusal, err := guard.WriteAnyway(older.ctx, overtaking, stamp(9, 3, 0), strings.NewReader("late"), nil)
	if err != nil || !guard.Refused(refusal) || receipt.Mark != stamp(20, 2, 0).Mark() {
		t.Errorf("overtaken: %+v, refusal %v, error %v", receipt, refusal, err)
	}
	older.holds(state{stamp(20, 2, 0).Mark(), []byte("late"), true}, "after a write that was overtaken")
}

// overtaker lets a newer owner write just after the mark was read.
type overtaker struct {
	guard.Artifact
	overtake func()
}

func (o *overtaker) Mark(ctx context.Context) (fence.Mark, error) {
	mark, err := o.Artifact.Mark(ctx)
	if o.overtake != nil {
		o.overtake()
		o.overtake = nil
	}
	return mark, err
}
