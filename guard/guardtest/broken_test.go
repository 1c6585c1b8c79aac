package guardtest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"runtime"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/fence/signed"
	"github.com/croft-dev/croft/guard"
)

// guardWith is a Memory with one method broken.
type guardWith struct {
	*Memory
	write func(m *Memory, stamp fence.Stamp, content []byte) error
	raise func(m *Memory, stamp fence.Stamp) (fence.Mark, error)
	rekey func(m *Memory, key string) (fence.Mark, error)
	reset func(m *Memory, floor fence.Token) (fence.Mark, error)
}

func (g guardWith) Write(ctx context.Context, stamp fence.Stamp, r io.Reader) (guard.Receipt, error) {
	if g.write == nil {
		return g.Memory.Write(ctx, stamp, r)
	}
	content, err := readAll(ctx, r)
	if err != nil {
		return guard.Receipt{}, err
	}
	return guard.Receipt{}, g.write(g.Memory, stamp, content)
}

func (g guardWith) Raise(ctx context.Context, stamp fence.Stamp) (fence.Mark, error) {
	if g.raise == nil || ctx.Err() != nil {
		return g.Memory.Raise(ctx, stamp)
	}
	return g.raise(g.Memory, stamp)
}

func (g guardWith) Rekey(ctx context.Context, key, actor, note string) (fence.Mark, error) {
	if g.rekey == nil || ctx.Err() != nil || guard.CheckRekey(key, actor, note) != nil {
		return g.Memory.Rekey(ctx, key, actor, note)
	}
	return g.rekey(g.Memory, key)
}

func (g guardWith) Reset(ctx context.Context, floor fence.Token, actor, note string) (fence.Mark, error) {
	if g.reset == nil || ctx.Err() != nil || guard.CheckReset(actor, note) != nil {
		return g.Memory.Reset(ctx, floor, actor, note)
	}
	return g.reset(g.Memory, floor)
}

// forged is what a guard keeps of the suite's Reset.
var forged = guard.Rekeyed{From: usual, Actor: "ann@example", Note: "it was forged", At: time.Now()}

// resetting makes a guard that resets by another law, and keeps kept of it.
func resetting(kept guard.Rekeyed, law func(fence.Mark, fence.Token) (fence.Mark, error)) guardWith {
	return guardWith{reset: func(m *Memory, floor fence.Token) (mark fence.Mark, err error) {
		m.locked(func() {
			if mark, err = law(m.mark, floor); err == nil {
				m.mark, m.rekeyed = mark, kept
			}
		})
		return mark, err
	}}
}

// locked holds the guard's mutex during one call. A guard that uses it twice
// for one write does not write in one step.
func (m *Memory) locked(do func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	do()
}

// dawdle lets all other goroutines go first.
func dawdle() {
	for range 20 {
		runtime.Gosched()
	}
}

func (m *Memory) put(content []byte) { m.content, m.written = content, true }

// deciding makes a guard that writes in one step, but decides by another rule
// than the law.
func deciding(admit func(m fence.Mark, s fence.Stamp) (fence.Mark, error)) guardWith {
	return guardWith{
		write: func(m *Memory, s fence.Stamp, content []byte) (err error) {
			m.locked(func() {
				var next fence.Mark
				if next, err = admit(m.mark, s); err == nil {
					m.mark = next
					m.put(content)
				}
			})
			return err
		},
		raise: func(m *Memory, s fence.Stamp) (mark fence.Mark, err error) {
			m.locked(func() {
				mark = m.mark
				if m.mark == s.Mark() {
					return
				}
				if mark, err = admit(m.mark, s); err == nil {
					m.mark = mark
				}
			})
			return mark, err
		},
	}
}

// brokenGuards are broken in ways in which real guards have been broken. Each
// names a check that must fail.
var brokenGuards = []struct {
	name, noticed string
	guard         guardWith
}{
	{
		"checks, then writes", "law 3 with tokens in any order",
		guardWith{write: func(m *Memory, s fence.Stamp, content []byte) (err error) {
			var next fence.Mark
			m.locked(func() { next, err = m.mark.Admit(s) })
			if err == nil {
				dawdle()
				m.locked(func() { m.mark = next; m.put(content) })
			}
			return err
		}},
	},
	{
		"marks after the write", "law 3 with rising tokens",
		guardWith{write: func(m *Memory, s fence.Stamp, content []byte) (err error) {
			var next fence.Mark
			m.locked(func() {
				if next, err = m.mark.Admit(s); err == nil {
					m.put(content)
				}
			})
			if err == nil {
				dawdle()
				m.locked(func() {
					if next.Token > m.mark.Token {
						m.mark = next
					}
				})
			}
			return err
		}},
	},
	{
		"advances the mark, then writes without looking", "law 3 with rising tokens",
		guardWith{write: func(m *Memory, s fence.Stamp, content []byte) (err error) {
			m.locked(func() { m.mark, err = m.mark.Admit(s) })
			if err == nil {
				dawdle()
				m.locked(func() { m.put(content) })
			}
			return err
		}},
	},
	{
		"writes in two parts", "law 3 with rising tokens",
		guardWith{write: func(m *Memory, s fence.Stamp, content []byte) (err error) {
			m.locked(func() {
				if m.mark, err = m.mark.Admit(s); err == nil {
					m.put(content[:len(content)/2])
				}
			})
			if err == nil {
				dawdle()
				m.locked(func() {
					if m.mark == s.Mark() {
						m.put(content)
					}
				})
			}
			return err
		}},
	},
	{
		"never marks", "every row of the law through Write",
		guardWith{write: func(m *Memory, s fence.Stamp, content []byte) (err error) {
			m.locked(func() {
				if _, err = m.mark.Admit(s); err == nil {
					m.put(content)
				}
			})
			return err
		}},
	},
	{
		"moves the mark when it refuses", "every row of the law through Write",
		guardWith{write: func(m *Memory, s fence.Stamp, content []byte) (err error) {
			m.locked(func() {
				if _, err = m.mark.Admit(s); err == nil {
					m.put(content)
				}
				m.mark = s.Mark()
			})
			return err
		}},
	},
	{
		"writes when it refuses", "every row of the law through Write",
		guardWith{write: func(m *Memory, s fence.Stamp, content []byte) (err error) {
			m.locked(func() { m.mark, err = m.mark.Admit(s); m.put(content) })
			return err
		}},
	},
	{
		"refuses what is equal", "every row of the law through Write",
		deciding(func(m fence.Mark, s fence.Stamp) (fence.Mark, error) {
			if s.Key == m.Key && s.Token == m.Token {
				return m, &fence.StaleError{Presented: s, Newest: m}
			}
			return m.Admit(s)
		}),
	},
	{
		"ignores the grant", "every row of the law through Write",
		deciding(func(m fence.Mark, s fence.Stamp) (fence.Mark, error) {
			if m.Grant != "" && s.Check() == nil {
				m.Grant = s.Grant
			}
			return m.Admit(s)
		}),
	},
	{
		"ignores the key", "every row of the law through Raise",
		deciding(func(m fence.Mark, s fence.Stamp) (fence.Mark, error) {
			if !m.IsZero() && s.Check() == nil {
				m.Key = s.Key
			}
			return m.Admit(s)
		}),
	},
	{
		"ignores numbers", "numbered writes are admitted once and in order",
		deciding(func(m fence.Mark, s fence.Stamp) (fence.Mark, error) { s.Seq = 0; return m.Admit(s) }),
	},
	{
		"forgets the number at an unnumbered write", "numbered writes are admitted once and in order",
		deciding(func(m fence.Mark, s fence.Stamp) (fence.Mark, error) {
			next, err := m.Admit(s)
			if err == nil {
				next = s.Mark()
			}
			return next, err
		}),
	},
	{
		"counts refused writes", "a guard that counts counts admitted writes",
		guardWith{write: func(m *Memory, s fence.Stamp, content []byte) (err error) {
			m.locked(func() {
				m.counts.Writes++
				if m.mark, err = m.mark.Admit(s); err == nil {
					m.put(content)
				}
			})
			return err
		}},
	},
	{
		"lowers the mark at an unnumbered write of its owner", "a write made anyway keeps the mark",
		deciding(func(m fence.Mark, s fence.Stamp) (fence.Mark, error) {
			next, err := m.Admit(s)
			if err == nil && !m.IsZero() && next == m {
				next.Token--
			}
			return next, err
		}),
	},
	{
		"admits stamps that are none", "an invalid stamp changes nothing",
		deciding(func(m fence.Mark, s fence.Stamp) (fence.Mark, error) {
			if s.Check() != nil {
				return m, nil
			}
			return m.Admit(s)
		}),
	},
	{
		"says no without saying why", "every row of the law through Write",
		deciding(func(m fence.Mark, s fence.Stamp) (fence.Mark, error) {
			next, err := m.Admit(s)
			if errors.Is(err, fence.ErrStale) {
				err = fence.ErrStale
			}
			return next, err
		}),
	},
	{
		"raises nothing", "a raise before the first read shuts the old owner out",
		guardWith{raise: func(m *Memory, s fence.Stamp) (mark fence.Mark, err error) {
			m.locked(func() { mark, err = m.mark.Raise(s) })
			return mark, err
		}},
	},
	{
		"raises by writing nothing", "a raise writes nothing",
		guardWith{raise: func(m *Memory, s fence.Stamp) (mark fence.Mark, err error) {
			m.locked(func() {
				if m.mark, err = m.mark.Raise(s); err == nil {
					m.put(nil)
				}
				mark = m.mark
			})
			return mark, err
		}},
	},
	{
		"takes a second raise for a repeated write", "raising twice is the same as once",
		guardWith{raise: func(m *Memory, s fence.Stamp) (mark fence.Mark, err error) {
			m.locked(func() { m.mark, err = m.mark.Admit(s); mark = m.mark })
			return mark, err
		}},
	},
	{
		"drops the floor when rekeyed", "rekey moves the resource and keeps the floor",
		guardWith{rekey: func(m *Memory, key string) (mark fence.Mark, err error) {
			m.locked(func() { m.mark = fence.Mark{Key: key}; mark = m.mark })
			return mark, nil
		}},
	},
	{
		"resets every mark", "a reset takes back a mark that was made up",
		resetting(forged, func(m fence.Mark, floor fence.Token) (fence.Mark, error) {
			return fence.Mark{Key: m.Key, Token: floor}, nil
		}),
	},
	{
		"resets to a made-up floor", "a reset takes back a mark that was made up",
		resetting(forged, func(m fence.Mark, floor fence.Token) (fence.Mark, error) {
			if !fence.Doubtful(m.Token, time.Now()) {
				return m.Reset(floor, time.Now())
			}
			return fence.Mark{Key: m.Key, Token: floor}, nil
		}),
	},
	{
		"keeps the grant of a made-up mark", "a reset takes back a mark that was made up",
		resetting(forged, func(m fence.Mark, floor fence.Token) (fence.Mark, error) {
			next, err := m.Reset(floor, time.Now())
			next.Grant = m.Grant
			return next, err
		}),
	},
	{
		"forgets who has reset a mark", "a reset takes back a mark that was made up",
		resetting(guard.Rekeyed{}, func(m fence.Mark, floor fence.Token) (fence.Mark, error) { return m.Reset(floor, time.Now()) }),
	},
	{
		"admits a made-up token", "an invalid stamp changes nothing",
		guardWith{write: func(m *Memory, s fence.Stamp, content []byte) (err error) {
			m.locked(func() {
				if m.mark, err = m.mark.Admit(s); err == nil {
					m.put(content)
				}
			})
			return err
		}},
	},
	{
		"forgets who has moved a resource", "rekey moves the resource and keeps the floor",
		guardWith{rekey: func(m *Memory, key string) (mark fence.Mark, err error) {
			m.locked(func() { m.mark, err = m.mark.Rekey(key); mark = m.mark })
			return mark, err
		}},
	},
}

func TestBrokenGuardsAreCaught(t *testing.T) {
	for _, b := range brokenGuards {
		t.Run(b.name, func(t *testing.T) {
			mustNotice(t, b.noticed, func(testing.TB) Resource {
				res := new(Memory).Resource()
				g := b.guard
				g.Memory = res.Open(t).Guard.(*Memory)
				res.Open = func(testing.TB) Handle { return Artifact(g) }
				return res
			})
		})
	}
}

// mustNotice runs the named check on a broken guard, in the short form for slow
// guards. The check must fail.
func mustNotice(t *testing.T, by string, broken func(testing.TB) Resource) {
	t.Helper()
	for try := range 20 { // some flaws show only if two calls meet, which they do in most runs
		if said := Failures(t, Harness{Make: broken, Slow: true}, by)[by]; len(said) > 0 {
			t.Logf("caught by %q, try %d: %s", by, try+1, said[0])
			return
		}
	}
	t.Errorf("not noticed by %q", by)
}

// TestAGuardThatForgetsItsKeysIsCaught, be it in Write or in Raise alone.
func TestAGuardThatForgetsItsKeysIsCaught(t *testing.T) {
	const check = "a guard with keys admits only stamps that were issued"
	for name, handle := range map[string]func(m *Memory, keys *signed.Keys) guard.Artifact{
		"everywhere": func(m *Memory, _ *signed.Keys) guard.Artifact { return m },
		"in Write": func(m *Memory, keys *signed.Keys) guard.Artifact {
			return guardWith{Memory: m, raise: func(m *Memory, s fence.Stamp) (fence.Mark, error) {
				return keyed{m, keys}.Raise(context.Background(), s)
			}}
		},
		"in Raise": func(m *Memory, keys *signed.Keys) guard.Artifact {
			return guardWith{Memory: m, write: func(m *Memory, s fence.Stamp, content []byte) error {
				_, err := keyed{m, keys}.Write(context.Background(), s, bytes.NewReader(content))
				return err
			}}
		},
	} {
		failures := Failures(t, Harness{Make: func(testing.TB) Resource {
			m := &Memory{}
			r := m.Resource()
			r.Signed = func(_ testing.TB, keys *signed.Keys) Handle { return Artifact(handle(m, keys)) }
			return r
		}}, check)
		if len(failures) != 1 {
			t.Errorf("the suite has not noticed a guard that forgets its keys %s", name)
		}
	}
}
