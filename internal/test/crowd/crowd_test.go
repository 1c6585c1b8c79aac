package crowd

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/test/suite"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// guarded has the writes under some keys. Each key has a mark.
type guarded struct {
	mu    sync.Mutex
	marks map[string]fence.Mark
	log   map[string][]fence.Token
}

func (g *guarded) write(_ context.Context, key string, s fence.Stamp) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	next, err := g.marks[key].Admit(s)
	if err == nil {
		g.marks[key], g.log[key] = next, append(g.log[key], s.Token)
	}
	return err
}

func (g *guarded) written(_ context.Context, key string) ([]fence.Token, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.log[key]), nil
}

// sound makes a sound harness.
func sound() Harness {
	base := mem.New(nil)
	g := &guarded{marks: map[string]fence.Mark{}, log: map[string][]fence.Token{}}
	h := Harness{Keys: Keys(2), TTL: time.Minute, Write: g.write, Written: g.written}
	for range 4 {
		h.Stores = append(h.Stores, base.Open(nil))
	}
	return h
}

// lying is a store that changes its answers after it has decided.
type lying struct {
	store.Store
	lie func(a *store.Answer)
}

func (l lying) Apply(ctx context.Context, requests []tenure.Request) []store.Answer {
	answers := l.Store.Apply(ctx, requests)
	for i := range answers {
		l.lie(&answers[i])
	}
	return answers
}

func (l lying) Get(ctx context.Context, key string) (tenure.Record, error) {
	rec, err := l.Store.Get(ctx, key)
	for i := range rec.History {
		a := store.Answer{Record: tenure.Record{Cause: rec.History[i].Cause}}
		l.lie(&a)
		rec.History[i].Cause = a.Record.Cause
	}
	return rec, err
}

func told(lie func(a *store.Answer)) func(h *Harness) {
	return func(h *Harness) {
		for i, st := range h.Stores {
			h.Stores[i] = lying{st, lie}
		}
	}
}

// TestACrowdJudges: on a sound harness the crowd finds nothing. It notices each
// broken law.
func TestACrowdJudges(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(h *Harness)
		says  string
	}{
		"sound":              {func(*Harness) {}, ""},
		"all tokens are one": {told(func(a *store.Answer) { a.Record.Token = 7 }), "law 1: "},
		"tokens fall":        {told(func(a *store.Answer) { a.Record.Token = 1<<52 - a.Record.Token }), "law 2: "},
		"writes are admitted in any order": {func(h *Harness) {
			written := h.Written
			h.Written = func(ctx context.Context, key string) ([]fence.Token, error) {
				tokens, err := written(ctx, key)
				slices.Reverse(tokens)
				return tokens, err
			}
		}, "law 3: "},
		"admitted writes are lost": {func(h *Harness) {
			h.Written = func(context.Context, string) ([]fence.Token, error) { return nil, nil }
		}, "0 writes were admitted"},
		"the owner is refused": {func(h *Harness) {
			h.Write = func(_ context.Context, key string, s fence.Stamp) error {
				return &fence.StaleError{Presented: s, Newest: fence.Mark{Key: key, Token: s.Token + 1}}
			}
		}, "law 7: "},
		"terms begin for no reason": {told(func(a *store.Answer) { a.Record.Cause = "" }), "law 8: "},
		"grants are forgotten": {told(func(a *store.Answer) {
			if a.Err == nil && a.Record.State == tenure.Free {
				a.Err = &tenure.NotOwnedError{Why: tenure.WhyUnknown}
			}
		}), "a client was told: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said := suite.Record(t, func(tb testing.TB) {
				h := sound()
				c.spoil(&h)
				all := Gather(tb, h)
				all.GoesOn("there is work", 40)
				all.EverybodyGoesOn("for all")
				all.Judge()
			})
			if c.says == "" && len(said) > 0 {
				t.Errorf("a sound harness: %q", said[0])
			}
			if c.says != "" && !slices.ContainsFunc(said, func(s string) bool { return strings.HasPrefix(s, c.says) }) {
				t.Errorf("nothing of %q in %.400q", c.says, said)
			}
		})
	}
}
