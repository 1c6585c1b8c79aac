package fence

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// ErrAhead refuses a token that lies further ahead than any clock could be:
// somebody made it up. A guard that admitted one would refuse the rightful
// owner for centuries. Every error that matches it also matches [ErrInvalid].
var ErrAhead = errors.New("no store can have issued it")

// DefaultMaxAhead is how far a token may lie ahead of this machine's clock.
const DefaultMaxAhead = 365 * 24 * time.Hour

var maxAhead atomic.Int64

// SetMaxAhead sets, for all guards of this process, how far a token may lie
// ahead of this machine's clock. Tokens are microseconds since 1970 by a
// store's clock, or one above the token before. So a token that lies ahead
// comes from a clock that was wrong, or it was made up. Zero is
// [DefaultMaxAhead].
func SetMaxAhead(d time.Duration) { maxAhead.Store(int64(d)) }

func mostAhead() time.Duration {
	if most := time.Duration(maxAhead.Load()); most > 0 {
		return most
	}
	return DefaultMaxAhead
}

// newest is a moment that every right clock has passed. A clock that shows an
// earlier one stands still or was never set, and is taken to show this one.
var newest = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// CheckAhead refuses a token that lies too far ahead of now, with [ErrAhead].
func CheckAhead(t Token, now time.Time) error {
	if !above(t, now, mostAhead()) {
		return nil
	}
	return fmt.Errorf("%w token %d: %w: it is of %s, and this machine's clock shows %s; if that is right, the stamp was made up or the store's clock was far ahead",
		ErrInvalid, t, ErrAhead, time.UnixMicro(int64(t)).UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
}

// Doubtful reports whether a token lies more than half as far ahead as guards
// admit. An operator may reset such a mark.
func Doubtful(t Token, now time.Time) bool { return above(t, now, mostAhead()/2) }

// CanFollow reports whether guards admit the token after t. Clients ask for a
// token above every mark that a guard can have admitted: otherwise one made-up
// stamp would shut them out.
func CanFollow(t Token, now time.Time) bool { return !above(t+1, now, mostAhead()) }

func above(t Token, now time.Time, ahead time.Duration) bool {
	if now.Before(newest) {
		now = newest
	}
	return t > Token(now.Add(ahead).UnixMicro())
}

// CheckNow is what a guard asks of a stamp before it looks at its mark: that
// its form is right, by [Stamp.Check], and that a store can have issued it, by
// [CheckAhead].
func (s Stamp) CheckNow() error {
	if err := s.Check(); err != nil {
		return err
	}
	return CheckAhead(s.Token, time.Now())
}

// Reset is the mark after an operator has found that its token was made up. The
// operator knows from the store how high the key's tokens are: that is the
// floor. Owners up to it stay shut out. A mark that is not [Doubtful], or not
// above the floor, is not reset: its own token keeps stale owners out. Resetting
// twice is the same as once: a caller whose answer was lost may ask again.
func (m Mark) Reset(floor Token, now time.Time) (Mark, error) {
	switch {
	case !m.IsZero() && m == Mark{Key: m.Key, Token: floor}:
		return m, nil
	case !Doubtful(m.Token, now):
		return m, fmt.Errorf("%w reset: the token %d was not made up, as far as the clock tells; whoever is refused acquires anew, above it", ErrInvalid, m.Token)
	case floor < 1 || !CanFollow(floor, now):
		return m, fmt.Errorf("%w reset to %d: that is no token of the present", ErrInvalid, floor)
	case floor >= m.Token: // the key's own tokens are as high
		return m, fmt.Errorf("%w reset to %d: the mark is not above it, at %d; whoever is refused acquires anew", ErrInvalid, floor, m.Token)
	}
	return Mark{Key: m.Key, Token: floor}, nil
}
