package fence

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// ErrAhead refuses a token that lies further ahead than any clock could be:
// somebody made it up. If a guard admitted such a token, it would refuse the
// rightful owner for centuries. Every error that matches ErrAhead also matches
// [ErrInvalid].
var ErrAhead = errors.New("no store can have issued it")

// DefaultMaxAhead is how far a token may lie ahead of this machine's clock
// unless [SetMaxAhead] says otherwise.
const DefaultMaxAhead = 365 * 24 * time.Hour

var maxAhead atomic.Int64

// SetMaxAhead sets, for all guards of this process, how far a token may lie
// ahead of this machine's clock. Zero restores [DefaultMaxAhead].
//
// A token is the time in microseconds since 1970 by the store's clock, or one
// above the token before it. So a token that lies ahead comes from a clock that
// was wrong, or somebody made it up.
func SetMaxAhead(d time.Duration) { maxAhead.Store(int64(d)) }

func mostAhead() time.Duration {
	if most := time.Duration(maxAhead.Load()); most > 0 {
		return most
	}
	return DefaultMaxAhead
}

// newest is a moment that every correct clock has passed. A clock that shows an
// earlier time was never set or has stopped: this moment is used instead.
var newest = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// CheckAhead returns nil, or an error that matches [ErrAhead] if the token lies
// further ahead of now than [SetMaxAhead] allows.
func CheckAhead(t Token, now time.Time) error {
	if !above(t, now, mostAhead()) {
		return nil
	}
	return fmt.Errorf("%w token %d: %w: it is of %s, and this machine's clock shows %s; "+
		"if that is right, the stamp was made up or the store's clock was far ahead",
		ErrInvalid, t, ErrAhead, time.UnixMicro(int64(t)).UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
}

// Doubtful reports whether a token lies more than half as far ahead as guards
// admit. An operator may reset a mark with such a token: see [Mark.Reset].
func Doubtful(t Token, now time.Time) bool { return above(t, now, mostAhead()/2) }

// CanFollow reports whether guards admit the token after t. A client whose
// stamp a guard has refused asks the store for a token above the guard's mark,
// if CanFollow allows it. So one made-up stamp does not shut clients out.
func CanFollow(t Token, now time.Time) bool { return !above(t+1, now, mostAhead()) }

func above(t Token, now time.Time, ahead time.Duration) bool {
	if now.Before(newest) {
		now = newest
	}
	return t > Token(now.Add(ahead).UnixMicro())
}

// CheckNow checks a stamp before a guard compares it with its mark. It returns
// an error that matches [ErrInvalid] if the stamp is malformed (see
// [Stamp.Check]) or its token lies too far ahead (see [CheckAhead]).
func (s Stamp) CheckNow() error {
	if err := s.Check(); err != nil {
		return err
	}
	return CheckAhead(s.Token, time.Now())
}

// Reset returns the mark after an operator has found that its token was made
// up. floor is the highest token of the key, which the operator reads in the
// store. Owners with tokens up to the floor stay shut out.
//
// Reset returns the unchanged mark and an error that matches [ErrInvalid] if
// the mark is not [Doubtful] or not above the floor: then its own token still
// keeps stale owners out. It also refuses a floor that is no token of the
// present. Resetting twice is the same as resetting once, so a caller whose
// answer was lost may ask again.
func (m Mark) Reset(floor Token, now time.Time) (Mark, error) {
	switch {
	case !m.IsZero() && m == Mark{Key: m.Key, Token: floor}:
		return m, nil
	case !Doubtful(m.Token, now):
		return m, fmt.Errorf("%w reset: the token %d was not made up, as far as the clock tells; "+
			"whoever is refused acquires anew, above it", ErrInvalid, m.Token)
	case floor < 1 || !CanFollow(floor, now):
		return m, fmt.Errorf("%w reset to %d: that is no token of the present", ErrInvalid, floor)
	case floor >= m.Token: // the key's own tokens are as high
		return m, fmt.Errorf("%w reset to %d: the mark is not above it, at %d; whoever is refused acquires anew",
			ErrInvalid, floor, m.Token)
	}
	return Mark{Key: m.Key, Token: floor}, nil
}
