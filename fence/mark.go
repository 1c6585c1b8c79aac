package fence

import (
	"errors"
	"fmt"
	"time"
)

// The reasons for which a resource refuses a stamp. After a refusal nothing has
// changed.
var (
	// ErrWrongKey refuses a stamp whose key differs from the resource's key.
	ErrWrongKey = errors.New("the resource belongs to another key")
	// ErrRepeated refuses a numbered write whose number is not above the last
	// one admitted of the same grant.
	ErrRepeated = errors.New("a late or repeated write of the same grant")
	// ErrCollision refuses a stamp whose token the resource has already seen
	// from another grant. The lease store has lost its memory and issued a
	// token twice. The first writer wins. Acquire the lease again with Above
	// set to this token.
	ErrCollision = errors.New("the same token from two grants: the lease store has lost its memory")
	// ErrStale is matched by every [*StaleError]: the resource has admitted a
	// newer owner.
	ErrStale = errors.New("a newer owner has been admitted")
)

// Mark is the newest stamp that a guarded resource has admitted. The resource
// keeps it with its data. The zero Mark has admitted nothing.
type Mark struct {
	Key   string `json:"key"`
	Token Token  `json:"token"`
	Grant Grant  `json:"grant"`
	Seq   uint64 `json:"seq"`
}

// Stamp returns the newest stamp that the resource has admitted, without its
// signature.
func (m Mark) Stamp() Stamp { return Stamp{Key: m.Key, Token: m.Token, Grant: m.Grant, Seq: m.Seq} }

// IsZero reports whether the resource has never admitted a stamp.
func (m Mark) IsZero() bool { return m == Mark{} }

// Admit decides whether a write with this stamp counts. If it does, Admit
// returns the new mark, which the resource keeps in the same atomic step as the
// write. Otherwise it returns the unchanged mark and one of:
//
//   - a [*StaleError], if the stamp is older than the mark, or not above the
//     floor that [Mark.Rekey] or [Mark.Reset] has left;
//   - a [*RefusedError], which unwraps to [ErrWrongKey], [ErrRepeated] or
//     [ErrCollision];
//   - an error that matches [ErrInvalid], if the stamp is malformed.
//
// Admit does not look at the clock. Guards call [Stamp.CheckNow] before it.
func (m Mark) Admit(s Stamp) (Mark, error) {
	if err := s.Check(); err != nil {
		return m, err
	}
	switch {
	case m.IsZero():
		return s.Mark(), nil
	case s.Key != m.Key:
		return m, &RefusedError{Err: ErrWrongKey, Presented: s, Mark: m}
	case s.Token > m.Token:
		return s.Mark(), nil
	case s.Token < m.Token:
		return m, &StaleError{Presented: s, Newest: m}
	// Rekeyed or reset: the token is a floor, without a grant.
	case m.Grant == "":
		return m, &StaleError{Presented: s, Newest: m}
	case s.Grant != m.Grant:
		return m, &RefusedError{Err: ErrCollision, Presented: s, Mark: m}
	// Unnumbered: keep the mark, so that later repeats of numbered writes are
	// still refused.
	case s.Seq == 0:
		return m, nil
	case s.Seq <= m.Seq:
		return m, &RefusedError{Err: ErrRepeated, Presented: s, Mark: m}
	}
	return s.Mark(), nil
}

// Rekey returns the mark after an operator has moved the resource to another
// key. The token stays as a floor: the next writer needs a higher one. The
// error matches [ErrInvalid] if the key is malformed.
func (m Mark) Rekey(key string) (Mark, error) {
	if err := CheckKey(key); err != nil {
		return m, err
	}
	return Mark{Key: key, Token: m.Token}, nil
}

// RefusedError refuses a stamp for a reason other than age. It unwraps to
// [ErrWrongKey], [ErrRepeated] or [ErrCollision].
type RefusedError struct {
	Err       error
	Presented Stamp
	Mark      Mark
}

func (e *RefusedError) Error() string {
	switch {
	case errors.Is(e.Err, ErrWrongKey):
		return fmt.Sprintf("write refused: %v: it belongs to %q, the write is for %q; "+
			"if it has moved for good, use guard rekey", e.Err, e.Mark.Key, e.Presented.Key)
	case errors.Is(e.Err, ErrRepeated):
		return fmt.Sprintf("write refused: %v: sequence %d, newest %d; it has been overtaken, leave it out",
			e.Err, e.Presented.Seq, e.Mark.Seq)
	}
	return fmt.Sprintf("write refused: %v: token %d of %q; acquire again above it",
		e.Err, e.Presented.Token, e.Presented.Key)
}

func (e *RefusedError) Unwrap() error { return e.Err }

// StaleError refuses a stamp that is older than the mark: its owner has been
// replaced and must stop.
type StaleError struct {
	Presented Stamp
	Newest    Mark
	// PresentedOwner and NewestOwner are set where they are known. The fence
	// itself does not keep owners.
	PresentedOwner, NewestOwner string
}

func (e *StaleError) Error() string {
	by := func(owner string) string {
		if owner == "" {
			return ""
		}
		return " (" + owner + ")"
	}
	if Doubtful(e.Newest.Token, time.Now()) {
		return fmt.Sprintf("write refused: token %d for %q is below %d, which lies far ahead: "+
			"if this machine's clock is right, somebody made it up; an operator takes it back with guard reset",
			e.Presented.Token, e.Presented.Key, e.Newest.Token)
	}
	// There is no newer owner: the token is the floor that a rekey or a reset
	// has left.
	if e.Presented.Token == e.Newest.Token {
		return fmt.Sprintf("write refused: stale token %d%s for %q: "+
			"an operator set the resource's mark to token %d; acquire again above it",
			e.Presented.Token, by(e.PresentedOwner), e.Presented.Key, e.Newest.Token)
	}
	return fmt.Sprintf("write refused: stale token %d%s for %q, newest admitted is %d%s; "+
		"stop this work, it has a newer owner",
		e.Presented.Token, by(e.PresentedOwner), e.Presented.Key, e.Newest.Token, by(e.NewestOwner))
}

// Is makes every StaleError match [ErrStale].
func (e *StaleError) Is(target error) bool { return target == ErrStale }
