package guardtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
)

// probe is a resource under test, with one handle on it.
type probe struct {
	Handle
	t   testing.TB
	ctx context.Context
	res Resource
}

func newProbe(t testing.TB, h Harness) *probe {
	t.Helper()
	res := h.Make(t)
	return &probe{Handle: res.Open(t), t: t, ctx: t.Context(), res: res}
}

// another opens another handle on the same resource.
func (p *probe) another() *probe {
	p.t.Helper()
	return &probe{Handle: p.res.Open(p.t), t: p.t, ctx: p.ctx, res: p.res}
}

// mustWrite writes. The guard must admit the stamp.
func (p *probe) mustWrite(s fence.Stamp, payload string) {
	p.t.Helper()
	if err := p.Write(p.ctx, s, []byte(payload)); err != nil {
		p.t.Fatalf("write with %s: %v; want it admitted", s, err)
	}
}

// mustRaise raises the mark. The guard must admit the stamp.
func (p *probe) mustRaise(s fence.Stamp) {
	p.t.Helper()
	mark, err := p.Raise(p.ctx, s)
	if err != nil {
		p.t.Fatalf("raise to %s: %v; want it admitted", s, err)
	}
	if stands := p.mark(); mark != stands {
		p.t.Errorf("raise to %s answered %+v, the mark that stands is %+v", s, mark, stands)
	}
}

// mustKeep checks what the resource keeps of the last Rekey or Reset. It only
// checks that there is a time.
func (p *probe) mustKeep(want guard.Rekeyed) {
	p.t.Helper()
	kept, err := p.Rekeyed(p.ctx)
	if err != nil {
		p.t.Fatalf("Rekeyed: %v", err)
	}
	if kept.At.IsZero() {
		p.t.Errorf("the resource keeps %+v, without a time", kept)
	}
	if kept.At = want.At; kept != want {
		p.t.Errorf("the resource keeps %+v, want %+v", kept, want)
	}
}

func (p *probe) mustRekey(key string) {
	p.t.Helper()
	mark, err := p.Rekey(p.ctx, key, "ann@example", "moved to another job")
	if err != nil {
		p.t.Fatalf("rekey to %q: %v", key, err)
	}
	if stands := p.mark(); mark != stands {
		p.t.Errorf("rekey to %q answered %+v, the mark that stands is %+v", key, mark, stands)
	}
}

// mark reads the mark.
func (p *probe) mark() fence.Mark {
	p.t.Helper()
	mark, err := p.Mark(p.ctx)
	if err != nil {
		p.t.Fatalf("mark: %v", err)
	}
	return mark
}

// state is everything that a refused call must leave unchanged.
type state struct {
	mark    fence.Mark
	content []byte
	written bool
}

func (p *probe) state() state {
	p.t.Helper()
	content, written, err := p.res.Read(p.ctx)
	if err != nil {
		p.t.Fatalf("read: %v", err)
	}
	return state{p.mark(), content, written}
}

// holds fails the test if the state is not the wanted one.
func (p *probe) holds(want state, after string) {
	p.t.Helper()
	got := p.state()
	if got.mark != want.mark {
		p.t.Errorf("%s: the mark is %+v, want %+v", after, got.mark, want.mark)
	}
	if got.written != want.written || !bytes.Equal(got.content, want.content) {
		p.t.Errorf("%s: the content is %s, want %s", after, describe(got), describe(want))
	}
}

func describe(s state) string {
	if !s.written {
		return "none"
	}
	return fmt.Sprintf("%.60q (%d bytes)", s.content, len(s.content))
}

// differs says how an answer differs from the law's answer. It returns "" if it
// does not. A refusal must have the law's type and carry the law's facts.
func differs(got, law error) string {
	var stale, wantStale *fence.StaleError
	var refused, wantRefused *fence.RefusedError
	switch {
	case law == nil:
		if got != nil {
			return fmt.Sprintf("refused (%v), the law admits it", got)
		}
	case got == nil:
		return fmt.Sprintf("admitted, the law refuses it (%v)", law)
	case errors.As(law, &wantStale):
		if !errors.As(got, &stale) || !errors.Is(got, fence.ErrStale) {
			return fmt.Sprintf("answered %v (%T), want a *fence.StaleError", got, got)
		}
		if stale.Presented != wantStale.Presented || stale.Newest != wantStale.Newest {
			return fmt.Sprintf("stale error says presented %+v, newest %+v; want %+v, %+v",
				stale.Presented, stale.Newest, wantStale.Presented, wantStale.Newest)
		}
	case errors.As(law, &wantRefused):
		if !errors.As(got, &refused) || !errors.Is(got, wantRefused.Err) {
			return fmt.Sprintf("answered %v (%T), want a *fence.RefusedError for: %v", got, got, wantRefused.Err)
		}
		if refused.Presented != wantRefused.Presented || refused.Mark != wantRefused.Mark {
			return fmt.Sprintf("refusal says presented %+v, mark %+v; want %+v, %+v",
				refused.Presented, refused.Mark, wantRefused.Presented, wantRefused.Mark)
		}
	case errors.Is(law, fence.ErrInvalid):
		if !errors.Is(got, fence.ErrInvalid) {
			return fmt.Sprintf("answered %v, want an error that matches fence.ErrInvalid", got)
		}
	default:
		return fmt.Sprintf("the law answered %v, which this suite does not know", law)
	}
	return ""
}

// grant returns the n-th grant of the suite.
func grant(n int) fence.Grant { return fence.Grant(fmt.Sprintf("%032x", n)) }

// stamp makes a stamp for the suite's usual key.
func stamp(token fence.Token, g int, seq uint64) fence.Stamp {
	return fence.Stamp{Key: usual, Token: token, Grant: grant(g), Seq: seq}
}

// The keys of the suite. Neither is a prefix of the other. The usual key has
// characters that are easy to get wrong.
const (
	usual = "guardtest/daily report: café"
	other = "guardtest/other"
)
