package guardtest

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
)

// These guards are broken in how they open or read. That needs more than
// another rule.

// forgetful keeps its mark in the handle: a new handle begins with none.
func forgetful(testing.TB) Resource {
	content := new(Memory)
	return Resource{
		Read: content.Read,
		Open: func(testing.TB) Handle {
			h := Artifact(new(Memory))
			write := h.Write
			h.Write = func(ctx context.Context, s fence.Stamp, payload []byte) error {
				err := write(ctx, s, payload)
				if err == nil {
					content.Put(payload)
				}
				return err
			}
			h.Stream = nil
			return h
		},
	}
}

// early decides before it reads the new content, and does not decide again.
type early struct{ *Memory }

func (e early) Write(ctx context.Context, s fence.Stamp, r io.Reader) (guard.Receipt, error) {
	var err error
	var next fence.Mark
	e.locked(func() { next, err = e.mark.Admit(s) })
	if err != nil {
		return guard.Receipt{}, err
	}
	content, err := readAll(ctx, r)
	if err == nil {
		e.locked(func() { e.mark = next; e.put(content) })
	}
	return guard.Receipt{}, err
}

// partial keeps the first part of the content if the reader fails.
type partial struct{ *Memory }

func (p partial) Write(ctx context.Context, s fence.Stamp, r io.Reader) (guard.Receipt, error) {
	content, broken := io.ReadAll(r)
	if err := ctx.Err(); err != nil {
		return guard.Receipt{}, err
	}
	var err error
	p.locked(func() {
		if p.mark, err = p.mark.Admit(s); err == nil {
			p.put(content)
		}
	})
	if err == nil {
		err = broken
	}
	return guard.Receipt{}, err
}

// heedless ignores that its context was cancelled.
type heedless struct{ *Memory }

func (g heedless) Write(_ context.Context, s fence.Stamp, r io.Reader) (guard.Receipt, error) {
	return g.Memory.Write(context.Background(), s, r)
}

func (g heedless) Raise(_ context.Context, s fence.Stamp) (fence.Mark, error) {
	return g.Memory.Raise(context.Background(), s)
}

func TestBrokenHandlesAreCaught(t *testing.T) {
	artifact := func(open func(*Memory) guard.Artifact) func(testing.TB) Resource {
		return func(testing.TB) Resource {
			m := new(Memory)
			res := m.Resource()
			res.Open = func(testing.TB) Handle { return Artifact(open(m)) }
			return res
		}
	}
	defer func(before time.Duration) { patience = before }(patience)
	patience = 100 * time.Millisecond // heedless guards wait for their reader
	t.Run("forgets its mark when opened again", func(t *testing.T) {
		mustNotice(t, "a mark outlives its handle", forgetful)
	})
	t.Run("decides before it has read", func(t *testing.T) {
		mustNotice(t, "a write overtaken while reading is refused", artifact(func(m *Memory) guard.Artifact { return early{m} }))
	})
	t.Run("keeps a part of a broken reader", func(t *testing.T) {
		mustNotice(t, "a broken reader changes nothing", artifact(func(m *Memory) guard.Artifact { return partial{m} }))
	})
	t.Run("does not heed a cancelled call", func(t *testing.T) {
		mustNotice(t, "a cancelled call changes nothing", artifact(func(m *Memory) guard.Artifact { return heedless{m} }))
	})
}
