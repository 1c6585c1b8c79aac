package fence_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/croft-dev/croft/fence"
)

// rule decides about a write, as Mark.Admit does. law3 takes any rule, so that
// the tests can show that it rejects broken ones.
type rule func(fence.Mark, fence.Stamp) (fence.Mark, error)

// passage is one event at a resource: a write or a raise with a stamp, or an
// operator's move to another key.
type passage struct {
	stamp fence.Stamp
	rekey string
}

// passages draws random interleavings of writes by several owners, in and out
// of order. Two grants may share a token, as happens after a store has lost its
// memory.
var passages = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) passage {
	if rapid.IntRange(0, 19).Draw(t, "rekey") == 0 {
		return passage{rekey: rapid.SampledFrom([]string{"k", "j"}).Draw(t, "to")}
	}
	return passage{stamp: fence.Stamp{
		Key:   rapid.SampledFrom([]string{"k", "k", "k", "k", "j"}).Draw(t, "key"),
		Token: fence.Token(rapid.IntRange(1, 6).Draw(t, "token")),
		Grant: rapid.SampledFrom([]fence.Grant{ann, bob}).Draw(t, "grant"),
		Seq:   rapid.Uint64Range(0, 4).Draw(t, "seq"),
	}}
}), 0, 40)

// law3 checks that no admitted write carries a token below an earlier one,
// admitted or raised. It also checks the rules that give this its
// worth: one token belongs to one grant, numbered writes of a grant come in
// order, the resource belongs to one key, and a refusal changes nothing. law3
// keeps its own record of the admitted writes and only compares the mark with
// it.
func law3(admit rule, ps []passage) error {
	var (
		mark     fence.Mark
		key      string      // to which the resource belongs; "" until somebody writes
		newest   fence.Token // the highest token admitted
		grant    fence.Grant // of the newest token; "" after a move
		seq      uint64      // the highest number of that grant
		admitted []fence.Stamp
	)
	for i, p := range ps {
		if p.rekey != "" {
			moved, err := mark.Rekey(p.rekey)
			if err != nil {
				return err
			}
			mark, key, grant, seq = moved, p.rekey, "", 0
			continue
		}
		s := p.stamp
		next, err := admit(mark, s)
		fail := func(why string) error {
			return fmt.Errorf("law 3: %s at %d: %v with %+v gave %+v, %s", why, i, s, mark, next, fmt.Sprint(err))
		}
		before := slices.ContainsFunc(admitted, func(a fence.Stamp) bool { return a.Token > s.Token })
		var want error
		switch {
		case key != "" && s.Key != key:
			want = fence.ErrWrongKey
		case s.Token < newest, s.Token == newest && grant == "":
			want = fence.ErrStale
		case s.Token == newest && s.Grant != grant:
			want = fence.ErrCollision
		case s.Token == newest && s.Seq != 0 && s.Seq <= seq:
			want = fence.ErrRepeated
		}
		switch {
		case err == nil && before:
			return fail("a write below a token admitted before was admitted")
		case !errors.Is(err, want) || (want == nil && err != nil):
			return fail(fmt.Sprintf("the answer should be %v", want))
		case err != nil && next != mark:
			return fail("a refusal changed the mark")
		case err != nil:
			continue
		}
		if s.Token > newest {
			seq = 0
		}
		key, newest, grant, seq = s.Key, s.Token, s.Grant, max(seq, s.Seq)
		admitted = append(admitted, s)
		if next != (fence.Mark{Key: key, Token: newest, Grant: grant, Seq: seq}) {
			return fail("the mark does not show the newest write")
		}
		if again, err := admit(next, fence.Stamp{Key: s.Key, Token: s.Token, Grant: s.Grant}); err != nil || again != next {
			return fail("raising the fence to where it is was not the same as not raising it")
		}
		mark = next
	}
	return nil
}

// TestLaw3NoAdmittedWriteBelowOneBefore: over random interleavings of owners.
func TestLaw3NoAdmittedWriteBelowOneBefore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		if err := law3(fence.Mark.Admit, passages.Draw(t, "passages")); err != nil {
			t.Fatal(err)
		}
	})
}

// TestLaw3RejectsBrokenRules: each of these rules has one fault that somebody
// once shipped. law3 must find it.
func TestLaw3RejectsBrokenRules(t *testing.T) {
	swap := func(want error, then rule) rule {
		return func(m fence.Mark, s fence.Stamp) (fence.Mark, error) {
			next, err := m.Admit(s)
			if errors.Is(err, want) {
				return then(m, s)
			}
			return next, err
		}
	}
	take := func(_ fence.Mark, s fence.Stamp) (fence.Mark, error) { return s.Mark(), nil }
	let := func(m fence.Mark, _ fence.Stamp) (fence.Mark, error) { return m, nil }
	for name, broken := range map[string]rule{
		"admits whatever comes":              take,
		"lets stale writes pass":             swap(fence.ErrStale, let),
		"lets stale writes lower the mark":   swap(fence.ErrStale, take),
		"lets the second of two grants pass": swap(fence.ErrCollision, let),
		"lets the last of two grants win":    swap(fence.ErrCollision, take),
		"lets repeated writes pass":          swap(fence.ErrRepeated, let),
		"lets repeated writes turn back":     swap(fence.ErrRepeated, take),
		"lets another key pass":              swap(fence.ErrWrongKey, let),
		"lets another key take the resource": swap(fence.ErrWrongKey, take),
		"takes a collision for an old owner": swap(fence.ErrCollision, func(m fence.Mark, s fence.Stamp) (fence.Mark, error) { return m, &fence.StaleError{} }),
		"moves the mark when it refuses": func(m fence.Mark, s fence.Stamp) (fence.Mark, error) {
			n, err := m.Admit(s)
			return pick(err != nil, s.Mark(), n), err
		},
		"forgets to advance the mark": func(m fence.Mark, s fence.Stamp) (fence.Mark, error) {
			n, err := m.Admit(s)
			return pick(m.IsZero(), n, m), err
		},
		"forgets the number at unnumbered ones": func(m fence.Mark, s fence.Stamp) (fence.Mark, error) {
			n, err := m.Admit(s)
			return pick(err == nil, s.Mark(), n), err
		},
		"compares the number across owners": func(m fence.Mark, s fence.Stamp) (fence.Mark, error) {
			if s.Key == m.Key && s.Seq != 0 && s.Seq <= m.Seq {
				return m, fence.ErrRepeated
			}
			return m.Admit(s)
		},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range 500 {
				if err := law3(broken, passages.Example(seed)); err != nil {
					t.Logf("caught by %q: %v", "law 3", err)
					return
				}
			}
			t.Error("it was not caught")
		})
	}
}

func pick(first bool, a, b fence.Mark) fence.Mark {
	if first {
		return a
	}
	return b
}
