package fence_test

import (
	"errors"
	"testing"

	"github.com/croft-dev/croft/fence"
)

const (
	ann fence.Grant = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	bob fence.Grant = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

// TestAdmitDecidesEveryCase is the whole table of the law of writing. It has
// every combination of mark, key, token, grant and sequence that makes a
// difference, and the mark that follows.
func TestAdmitDecidesEveryCase(t *testing.T) {
	const (
		admit = iota
		keep  // admitted, and the mark stays as it is
		stale
		collision
		repeated
		wrongKey
	)
	zero := fence.Mark{}
	fresh := fence.Mark{Key: "k", Token: 7, Grant: ann}            // admitted unnumbered writes only
	numbered := fence.Mark{Key: "k", Token: 7, Grant: ann, Seq: 3} // admitted write 3
	floor := fence.Mark{Key: "k", Token: 7}                        // rekeyed: a floor without a grant
	moved := fence.Mark{Key: "k"}                                  // rekeyed before anything was admitted
	top := fence.Mark{Key: "k", Token: fence.MaxToken, Grant: ann}

	for _, c := range []struct {
		name  string
		mark  fence.Mark
		stamp fence.Stamp
		want  int
	}{
		{"first of all", zero, fence.Stamp{Key: "k", Token: 1, Grant: ann}, admit},
		{"first of all, numbered", zero, fence.Stamp{Key: "k", Token: 1, Grant: ann, Seq: 9}, admit},

		{"other key, higher token", fresh, fence.Stamp{Key: "K", Token: 8, Grant: ann}, wrongKey},
		{"other key, same token and grant", fresh, fence.Stamp{Key: "K", Token: 7, Grant: ann}, wrongKey},
		{"other key, lower token", fresh, fence.Stamp{Key: "K", Token: 6, Grant: bob}, wrongKey},
		{"a longer key", fresh, fence.Stamp{Key: "k/k", Token: 8, Grant: ann}, wrongKey},
		{"other key, rekeyed", floor, fence.Stamp{Key: "old", Token: 8, Grant: ann}, wrongKey},
		{"other key, moved", moved, fence.Stamp{Key: "old", Token: 8, Grant: ann}, wrongKey},

		{"next token", fresh, fence.Stamp{Key: "k", Token: 8, Grant: bob}, admit},
		{"next token, first sequence", numbered, fence.Stamp{Key: "k", Token: 8, Grant: bob, Seq: 1}, admit},
		{"next token, unnumbered", numbered, fence.Stamp{Key: "k", Token: 8, Grant: bob}, admit},
		{"next token, same grant", numbered, fence.Stamp{Key: "k", Token: 8, Grant: ann, Seq: 1}, admit},
		{"highest token", fresh, fence.Stamp{Key: "k", Token: fence.MaxToken, Grant: bob}, admit},
		{"next token, rekeyed", floor, fence.Stamp{Key: "k", Token: 8, Grant: bob}, admit},
		{"any token, moved", moved, fence.Stamp{Key: "k", Token: 1, Grant: bob, Seq: 5}, admit},

		{"same grant, unnumbered again", fresh, fence.Stamp{Key: "k", Token: 7, Grant: ann}, keep},
		{"same grant, unnumbered after numbered", numbered, fence.Stamp{Key: "k", Token: 7, Grant: ann}, keep},
		{"same grant, numbered after unnumbered", fresh, fence.Stamp{Key: "k", Token: 7, Grant: ann, Seq: 1}, admit},
		{"same grant, next number", numbered, fence.Stamp{Key: "k", Token: 7, Grant: ann, Seq: 4}, admit},
		{"same grant, a number left out", numbered, fence.Stamp{Key: "k", Token: 7, Grant: ann, Seq: 1 << 63}, admit},
		{"same grant, same number", numbered, fence.Stamp{Key: "k", Token: 7, Grant: ann, Seq: 3}, repeated},
		{"same grant, late number", numbered, fence.Stamp{Key: "k", Token: 7, Grant: ann, Seq: 2}, repeated},
		{"the highest token again", top, fence.Stamp{Key: "k", Token: fence.MaxToken, Grant: ann}, keep},

		{"same token, other grant", fresh, fence.Stamp{Key: "k", Token: 7, Grant: bob}, collision},
		{"same token, other grant, higher number", numbered, fence.Stamp{Key: "k", Token: 7, Grant: bob, Seq: 4}, collision},
		{"same token, other grant, same number", numbered, fence.Stamp{Key: "k", Token: 7, Grant: bob, Seq: 3}, collision},
		{"the token of the floor", floor, fence.Stamp{Key: "k", Token: 7, Grant: ann}, stale},

		{"lower token", fresh, fence.Stamp{Key: "k", Token: 6, Grant: bob}, stale},
		{"lower token, higher number", numbered, fence.Stamp{Key: "k", Token: 6, Grant: bob, Seq: 99}, stale},
		{"lower token, same grant", numbered, fence.Stamp{Key: "k", Token: 6, Grant: ann, Seq: 99}, stale},
		{"lowest token", fresh, fence.Stamp{Key: "k", Token: 1, Grant: ann}, stale},
		{"below the floor", floor, fence.Stamp{Key: "k", Token: 6, Grant: ann}, stale},
	} {
		t.Run(c.name, func(t *testing.T) {
			next, err := c.mark.Admit(c.stamp)
			wantMark := c.mark
			if c.want == admit {
				wantMark = fence.Mark{Key: c.stamp.Key, Token: c.stamp.Token, Grant: c.stamp.Grant, Seq: c.stamp.Seq}
			}
			if next != wantMark {
				t.Errorf("the mark is %+v, want %+v", next, wantMark)
			}
			switch c.want {
			case admit, keep:
				if err != nil {
					t.Errorf("refused: %v", err)
				}
			case stale:
				wantStale(t, err, c.stamp, c.mark)
			case collision:
				wantRefused(t, err, fence.ErrCollision, c.stamp, c.mark)
			case repeated:
				wantRefused(t, err, fence.ErrRepeated, c.stamp, c.mark)
			case wrongKey:
				wantRefused(t, err, fence.ErrWrongKey, c.stamp, c.mark)
			}
		})
	}
}

// wantStale checks the error's type and facts, and that it matches no other
// refusal.
func wantStale(t *testing.T, err error, presented fence.Stamp, newest fence.Mark) {
	t.Helper()
	var e *fence.StaleError
	if !errors.As(err, &e) || !errors.Is(err, fence.ErrStale) {
		t.Fatalf("got %v, want a StaleError that matches ErrStale", err)
	}
	if *e != (fence.StaleError{Presented: presented, Newest: newest}) {
		t.Errorf("its facts are %+v", *e)
	}
	for _, other := range []error{fence.ErrCollision, fence.ErrRepeated, fence.ErrWrongKey, fence.ErrInvalid} {
		if errors.Is(err, other) {
			t.Errorf("%v also matches %v", err, other)
		}
	}
}

func wantRefused(t *testing.T, err, want error, presented fence.Stamp, mark fence.Mark) {
	t.Helper()
	var e *fence.RefusedError
	if !errors.As(err, &e) || !errors.Is(err, want) {
		t.Fatalf("got %v, want a RefusedError that matches %v", err, want)
	}
	if *e != (fence.RefusedError{Err: want, Presented: presented, Mark: mark}) {
		t.Errorf("its facts are %+v", *e)
	}
	for _, other := range []error{fence.ErrCollision, fence.ErrRepeated, fence.ErrWrongKey, fence.ErrStale, fence.ErrInvalid} {
		if other != want && errors.Is(err, other) { //nolint:errorlint // sentinels are compared with each other
			t.Errorf("%v also matches %v", err, other)
		}
	}
}

// TestAdmitRefusesBadStamps: a malformed stamp changes no mark, whatever that
// mark is.
func TestAdmitRefusesBadStamps(t *testing.T) {
	good := fence.Stamp{Key: "k", Token: 8, Grant: ann}
	for name, spoil := range map[string]func(*fence.Stamp){
		"no key":           func(s *fence.Stamp) { s.Key = "" },
		"bad key":          func(s *fence.Stamp) { s.Key = "k//k" },
		"no token":         func(s *fence.Stamp) { s.Token = 0 },
		"negative token":   func(s *fence.Stamp) { s.Token = -1 },
		"token too high":   func(s *fence.Stamp) { s.Token = fence.MaxToken + 1 },
		"no grant":         func(s *fence.Stamp) { s.Grant = "" },
		"short grant":      func(s *fence.Stamp) { s.Grant = ann[1:] },
		"long grant":       func(s *fence.Stamp) { s.Grant = ann + "a" },
		"upper-case grant": func(s *fence.Stamp) { s.Grant = "A" + ann[1:] },
		"grant not hex":    func(s *fence.Stamp) { s.Grant = "g" + ann[1:] },
	} {
		for _, mark := range []fence.Mark{{}, {Key: "k", Token: 7, Grant: ann}, {Key: "k", Token: 7}, {Key: "other", Token: 7, Grant: bob}} {
			bad := good
			spoil(&bad)
			next, err := mark.Admit(bad)
			if !errors.Is(err, fence.ErrInvalid) || next != mark {
				t.Errorf("%s at %+v: %v and the mark %+v, want it invalid and the mark unchanged", name, mark, err, next)
			}
		}
	}
}

// TestRekeyKeepsTheTokenAsAFloor: after the move, no token that was valid
// before is admitted, on the old key or on the new one.
func TestRekeyKeepsTheTokenAsAFloor(t *testing.T) {
	old := fence.Mark{Key: "k", Token: 7, Grant: ann, Seq: 3}
	mark, err := old.Rekey("new")
	if err != nil || mark != (fence.Mark{Key: "new", Token: 7}) {
		t.Fatalf("rekeyed to %+v, %v", mark, err)
	}
	if again, err := mark.Rekey("new"); err != nil || again != mark {
		t.Errorf("rekeyed twice: %+v, %v; want the same as once", again, err)
	}
	for _, bad := range []string{"", "a//b", "..", "a\nb"} {
		if same, err := old.Rekey(bad); !errors.Is(err, fence.ErrInvalid) || same != old {
			t.Errorf("rekeyed to %q: %+v, %v; want it invalid and the mark unchanged", bad, same, err)
		}
	}
	if zero, err := (fence.Mark{}).Rekey("new"); err != nil || zero != (fence.Mark{Key: "new"}) || zero.IsZero() {
		t.Errorf("a mark that has admitted nothing was rekeyed to %+v, %v; want it to belong to the new key", zero, err)
	}
}

// TestRefusalsSayWhatToDo checks the messages that people read when a write is
// refused.
func TestRefusalsSayWhatToDo(t *testing.T) {
	mark := fence.Mark{Key: "k", Token: 7, Grant: ann, Seq: 3}
	for _, c := range []struct {
		stamp fence.Stamp
		want  string
	}{
		{fence.Stamp{Key: "k", Token: 6, Grant: bob}, `write refused: stale token 6 for "k", newest admitted is 7; stop this work, it has a newer owner`},
		{fence.Stamp{Key: "j", Token: 9, Grant: bob}, `write refused: the resource belongs to another key: it belongs to "k", the write is for "j"; if it has moved for good, use guard rekey`},
		{fence.Stamp{Key: "k", Token: 7, Grant: bob}, `write refused: the same token from two grants: the lease store has lost its memory: token 7 of "k"; acquire again above it`},
		{fence.Stamp{Key: "k", Token: 7, Grant: ann, Seq: 2}, `write refused: a late or repeated write of the same grant: sequence 2, newest 3; it has been overtaken, leave it out`},
	} {
		if _, err := mark.Admit(c.stamp); err == nil || err.Error() != c.want {
			t.Errorf("got\n\t%v, want\n\t%s", err, c.want)
		}
	}
	named := &fence.StaleError{Presented: fence.Stamp{Key: "k", Token: 6}, Newest: mark, PresentedOwner: "ann@a", NewestOwner: "bob@b"}
	if want := `write refused: stale token 6 (ann@a) for "k", newest admitted is 7 (bob@b); stop this work, it has a newer owner`; named.Error() != want {
		t.Errorf("got\n\t%v, want\n\t%s", named, want)
	}
	floor, _ := mark.Rekey("k")
	if _, err := floor.Admit(fence.Stamp{Key: "k", Token: 7, Grant: ann}); err == nil || err.Error() !=
		`write refused: stale token 7 for "k": an operator set the resource's mark to token 7; acquire again above it` {
		t.Errorf("got\n\t%v", err)
	}
}
