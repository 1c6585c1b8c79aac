package guardtest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
)

// prepared are the marks that the table starts from. The guard itself makes
// each of them.
var prepared = []struct {
	name string
	make func(p *probe)
}{
	{"no mark", func(*probe) {}},
	{"unnumbered", func(p *probe) { p.mustWrite(stamp(10, 1, 0), "first") }},
	{"numbered", func(p *probe) { p.mustWrite(stamp(10, 1, 5), "first") }},
	{"raised", func(p *probe) { p.mustWrite(stamp(9, 3, 0), "first"); p.mustRaise(stamp(10, 1, 0)) }},
	{"rekeyed", func(p *probe) {
		p.mustWrite(fence.Stamp{Key: other, Token: 10, Grant: grant(1)}, "first")
		p.mustRekey(usual)
	}},
}

// presented are the stamps that each mark meets. They lie on each side of every
// comparison in the law.
var presented = []fence.Stamp{
	{Key: other, Token: 11, Grant: grant(2)},
	{Key: other, Token: 10, Grant: grant(1)},
	stamp(11, 2, 0),
	stamp(11, 1, 3),
	stamp(fence.Token(time.Now().UnixMicro()), 2, 1<<63),
	stamp(10, 1, 0),
	stamp(10, 1, 4),
	stamp(10, 1, 5),
	stamp(10, 1, 6),
	stamp(10, 2, 0),
	stamp(10, 2, 6),
	stamp(9, 1, 0),
	stamp(9, 2, 6),
	stamp(1, 2, 0),
}

func tableOfWrites(t testing.TB, h Harness) {
	everyRow(t, h, fence.Mark.Admit, func(p *probe, s fence.Stamp, before, want state, refused bool) error {
		payload := "payload of " + s.String()
		err := p.Write(p.ctx, s, []byte(payload))
		if !refused {
			want.content, want.written = []byte(payload), true
		}
		p.holds(want, fmt.Sprintf("mark %+v, write with %s (%v)", before.mark, s, err))
		return err
	})
}

func tableOfRaises(t testing.TB, h Harness) {
	everyRow(t, h, fence.Mark.Raise, func(p *probe, s fence.Stamp, before, want state, _ bool) error {
		mark, err := p.Raise(p.ctx, s)
		if err == nil && mark != want.mark {
			p.t.Errorf("mark %+v, raise to %s answered %+v, want %+v", before.mark, s, mark, want.mark)
		}
		p.holds(want, fmt.Sprintf("mark %+v, raise to %s (%v)", before.mark, s, err))
		return err
	})
}

// everyRow presents every stamp to every prepared mark. Together they must
// reach every row of the law.
func everyRow(t testing.TB, h Harness, law func(fence.Mark, fence.Stamp) (fence.Mark, error),
	try func(p *probe, s fence.Stamp, before, want state, refused bool) error,
) {
	t.Helper()
	rows := map[string]int{}
	for _, prep := range prepared {
		var p *probe
		var before state
		for _, s := range presented {
			if p == nil {
				p = newProbe(t, h)
				prep.make(p)
				before = p.state()
			}
			want := before
			next, refusal := law(before.mark, s)
			want.mark = next
			rows[row(before.mark, next, refusal)]++
			got := try(p, s, before, want, refusal != nil)
			if d := differs(got, refusal); d != "" {
				t.Errorf("%s mark, stamp %s: %s", prep.name, s, d)
			}
			if refusal == nil || t.Failed() {
				p = nil // a refusal has left everything as it was; anything else needs a new probe
			}
		}
	}
	for _, name := range []string{
		"wrong key", "admitted, mark advances", "admitted, mark stays", "repeated", "collision", "stale",
	} {
		if rows[name] == 0 {
			t.Errorf("no case reached the row %q: the guard's own marks are not what they should be", name)
		}
	}
}

// row names the row of the law that decided.
func row(before, next fence.Mark, refusal error) string {
	switch {
	case errors.Is(refusal, fence.ErrWrongKey):
		return "wrong key"
	case errors.Is(refusal, fence.ErrRepeated):
		return "repeated"
	case errors.Is(refusal, fence.ErrCollision):
		return "collision"
	case errors.Is(refusal, fence.ErrStale):
		return "stale"
	case before == next:
		return "admitted, mark stays"
	}
	return "admitted, mark advances"
}

func invalidStamps(t testing.TB, h Harness) {
	p := newProbe(t, h)
	try := func(when string) {
		before := p.state()
		for name, s := range map[string]fence.Stamp{
			"no key":           {Token: 20, Grant: grant(1)},
			"a bad key":        {Key: "a/../b", Token: 20, Grant: grant(1)},
			"a long key":       {Key: strings.Repeat("k", fence.MaxKey+1), Token: 20, Grant: grant(1)},
			"no token":         {Key: usual, Grant: grant(1)},
			"a negative token": {Key: usual, Token: -20, Grant: grant(1)},
			"too high a token": {Key: usual, Token: fence.MaxToken + 1, Grant: grant(1)},
			"a made-up token":  {Key: usual, Token: fence.MaxToken, Grant: grant(1)},
			"no grant":         {Key: usual, Token: 20},
			"a bad grant":      {Key: usual, Token: 20, Grant: "ABC"},
		} {
			if err := p.Write(p.ctx, s, []byte("never")); !errors.Is(err, fence.ErrInvalid) {
				t.Errorf("write with %s: %v, want an error that matches fence.ErrInvalid", name, err)
			}
			if _, err := p.Raise(p.ctx, s); !errors.Is(err, fence.ErrInvalid) {
				t.Errorf("raise with %s: %v, want an error that matches fence.ErrInvalid", name, err)
			}
			p.holds(before, when+", after a stamp with "+name)
		}
	}
	try("fresh")
	p.mustWrite(stamp(10, 1, 0), "first")
	try("written")
	p.mustRekey(other)
	try("rekeyed")
}
