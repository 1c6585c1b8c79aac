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

// CheckAhead refuses a token that lies too far ahead of now, with [ErrAhead].
func CheckAhead(t Token, now time.Time) error {
	most := time.Duration(maxAhead.Load())
	if most <= 0 {
		most = DefaultMaxAhead
	}
	if t <= tokenAt(now.Add(most)) {
		return nil
	}
	return fmt.Errorf("%w token %d: %w: it is of %s, and this machine's clock shows %s",
		ErrInvalid, t, ErrAhead, time.UnixMicro(int64(t)).UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
}

// tokenAt is the token that a store issues at a moment, unless the key's last
// one is higher.
func tokenAt(at time.Time) Token { return Token(at.UnixMicro()) }

// CheckNow is what a guard asks of a stamp before it looks at its mark: that
// its form is right, by [Stamp.Check], and that a store can have issued it, by
// [CheckAhead].
func (s Stamp) CheckNow() error {
	if err := s.Check(); err != nil {
		return err
	}
	return CheckAhead(s.Token, time.Now())
}
