package guardtest

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/fence/signed"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/wait"
)

// Memory is a guarded artifact in memory. It is the reference for the suite,
// and a stand-in for tests of programs that write to guards. The zero Memory is
// ready, and has neither content nor mark. It is safe for concurrent use.
type Memory struct {
	mu      sync.Mutex
	mark    fence.Mark
	content []byte
	written bool
	guarded bool
	rekeyed guard.Rekeyed
	counts  guard.Counts
}

var _ guard.Artifact = (*Memory)(nil)

// Target names the resource.
func (m *Memory) Target() string { return "memory" }

// Close does nothing.
func (m *Memory) Close() error { return nil }

// Mark returns the newest admitted stamp.
func (m *Memory) Mark(ctx context.Context) (fence.Mark, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mark, ctx.Err()
}

// Raise advances the mark without writing.
func (m *Memory) Raise(ctx context.Context, stamp fence.Stamp) (fence.Mark, error) {
	if err := stamp.CheckNow(); err != nil {
		return fence.Mark{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return m.mark, err
	}
	next, err := m.mark.Raise(stamp)
	if err == nil && m.mark != next {
		m.mark, m.counts.Changed = next, time.Now()
	}
	return m.mark, err
}

// Rekey moves the resource to another key, and keeps the actor and the note.
func (m *Memory) Rekey(ctx context.Context, key, actor, note string) (fence.Mark, error) {
	if err := guard.CheckRekey(key, actor, note); err != nil {
		return fence.Mark{}, err
	}
	return m.move(ctx, actor, note, func(m fence.Mark) (fence.Mark, error) { return m.Rekey(key) })
}

// Reset takes back a mark whose token was made up.
func (m *Memory) Reset(ctx context.Context, floor fence.Token, actor, note string) (fence.Mark, error) {
	if err := guard.CheckReset(actor, note); err != nil {
		return fence.Mark{}, err
	}
	return m.move(ctx, actor, note, func(m fence.Mark) (fence.Mark, error) { return m.Reset(floor, time.Now()) })
}

// move moves the mark as law says, and keeps the actor and the note.
func (m *Memory) move(
	ctx context.Context, actor, note string, law func(fence.Mark) (fence.Mark, error),
) (fence.Mark, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return m.mark, err
	}
	next, err := law(m.mark)
	if err != nil {
		return m.mark, err
	}
	m.rekeyed = guard.Rekeyed{From: m.mark.Key, Actor: actor, Note: note, At: time.Now()}
	m.mark, m.counts.Changed = next, m.rekeyed.At
	return next, nil
}

// Write reads all of r, then replaces the content if the stamp is admitted.
func (m *Memory) Write(ctx context.Context, stamp fence.Stamp, r io.Reader) (guard.Receipt, error) {
	if err := stamp.CheckNow(); err != nil {
		return guard.Receipt{}, err
	}
	content, err := readAll(ctx, r)
	if err != nil {
		return guard.Receipt{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	next, err := m.mark.Admit(stamp)
	if err != nil {
		return guard.Receipt{}, err
	}
	adopted := m.written && !m.guarded
	m.mark, m.content, m.written, m.guarded = next, content, true, true
	m.counts = guard.Counts{Writes: m.counts.Writes + 1, Changed: time.Now()}
	return guard.Receipt{Mark: next, Bytes: int64(len(content)), Adopted: adopted}, nil
}

// Read returns the content, and whether there is any.
func (m *Memory) Read(ctx context.Context) ([]byte, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.content), m.written, ctx.Err()
}

// Rekeyed returns the last Rekey or Reset.
func (m *Memory) Rekeyed(ctx context.Context) (guard.Rekeyed, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rekeyed, ctx.Err()
}

// Counts returns how many writes were admitted.
func (m *Memory) Counts(ctx context.Context) (guard.Counts, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.counts, ctx.Err()
}

// Put writes without asking the guard, as a program does that does not know of
// it.
func (m *Memory) Put(content []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.content, m.written = slices.Clone(content), true
}

// Resource is the suite's view of the guard. All handles are m itself.
func (m *Memory) Resource() Resource {
	return Resource{
		Open:   func(testing.TB) Handle { return Artifact(m) },
		Read:   m.Read,
		Signed: func(_ testing.TB, keys *signed.Keys) Handle { return Artifact(keyed{m, keys}) },
	}
}

// readAll is io.ReadAll, but returns when ctx ends. A hanging Read goes on in
// its own goroutine.
func readAll(ctx context.Context, r io.Reader) ([]byte, error) {
	if err := wait.Ended(ctx); err != nil {
		return nil, err
	}
	content, err := wait.For(ctx, func() ([]byte, error) {
		content, err := io.ReadAll(r)
		if err != nil {
			return nil, fmt.Errorf("reading the new content: %w", err)
		}
		return content, nil
	})
	if err != nil {
		return nil, err
	}
	return content, wait.Ended(ctx)
}
