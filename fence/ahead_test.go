package fence_test

import (
	"errors"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
)

// TestAMadeUpTokenIsRefused: guards admit tokens up to a year ahead by default,
// and SetMaxAhead changes that bound.
func TestAMadeUpTokenIsRefused(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	at := func(d time.Duration) fence.Token { return fence.Token(now.Add(d).UnixMicro()) }
	try := func(token fence.Token, refused bool) {
		t.Helper()
		err := fence.CheckAhead(token, now)
		if errors.Is(err, fence.ErrAhead) != refused || errors.Is(err, fence.ErrInvalid) != refused {
			t.Errorf("token %d: %v; refused: want %v", token, err, refused)
		}
	}
	for _, token := range []fence.Token{0, 1, at(0), at(time.Hour), at(fence.DefaultMaxAhead)} {
		try(token, false)
	}
	for _, token := range []fence.Token{at(fence.DefaultMaxAhead) + 1, 1 << 52, fence.MaxToken} {
		try(token, true)
	}
	fence.SetMaxAhead(time.Hour)
	defer fence.SetMaxAhead(0)
	try(at(time.Hour), false)
	try(at(time.Hour)+1, true)
}

// TestEveryTokenThatGuardsAdmitCanBeFollowed, except the very last: the token
// after it is admitted as soon as the clock moves on.
func TestEveryTokenThatGuardsAdmitCanBeFollowed(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	last := fence.Token(now.Add(fence.DefaultMaxAhead).UnixMicro())
	for _, token := range []fence.Token{0, 1, last / 2, last - 1} {
		if !fence.CanFollow(token, now) {
			t.Errorf("nobody follows token %d, which guards admit", token)
		}
	}
	if fence.CanFollow(last, now) || !fence.CanFollow(last, now.Add(time.Microsecond)) {
		t.Error("the last token that guards admit is followed at once, or never")
	}
}

// TestAStampIsCheckedAgainstTheClock: CheckNow checks the form first, then the
// clock.
func TestAStampIsCheckedAgainstTheClock(t *testing.T) {
	s := fence.Stamp{Key: "k", Token: fence.Token(time.Now().UnixMicro()), Grant: "00000000000000000000000000000001"}
	if err := s.CheckNow(); err != nil {
		t.Error(err)
	}
	s.Token = fence.MaxToken
	if err := s.CheckNow(); !errors.Is(err, fence.ErrAhead) {
		t.Errorf("%v, want ErrAhead", err)
	}
	s.Grant = ""
	if err := s.CheckNow(); !errors.Is(err, fence.ErrInvalid) || errors.Is(err, fence.ErrAhead) {
		t.Errorf("%v, want what is wrong with its form", err)
	}
}

// TestOnlyAMadeUpMarkIsReset: Reset takes only a doubtful mark, and only a
// floor that is a token of the present.
func TestOnlyAMadeUpMarkIsReset(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	at := func(d time.Duration) fence.Token { return fence.Token(now.Add(d).UnixMicro()) }
	mark := func(token fence.Token) fence.Mark { return fence.Mark{Key: "k", Token: token, Grant: "g", Seq: 3} }
	for _, token := range []fence.Token{fence.MaxToken, 1 << 52, at(fence.DefaultMaxAhead), at(fence.DefaultMaxAhead/2) + 1} {
		got, err := mark(token).Reset(at(0), now)
		if err != nil || got != (fence.Mark{Key: "k", Token: at(0)}) {
			t.Errorf("from %d: %+v, %v", token, got, err)
		}
		if again, err := got.Reset(at(0), now); err != nil || again != got {
			t.Errorf("from %d, twice: %+v, %v", token, again, err)
		}
	}
	for _, token := range []fence.Token{0, 7, at(0), at(time.Hour), at(fence.DefaultMaxAhead / 2)} {
		if got, err := mark(token).Reset(at(-time.Hour), now); !errors.Is(err, fence.ErrInvalid) || got != mark(token) {
			t.Errorf("from %d: %+v, %v; want it as it was", token, got, err)
		}
	}
	// A client may have acquired above a made-up mark. Then the key's own
	// tokens lie as far ahead.
	followed := at(300 * 24 * time.Hour)
	if got, err := mark(followed+2).Reset(followed, now); err != nil || got.Token != followed {
		t.Errorf("to the key's own token: %+v, %v", got, err)
	}
	for _, floor := range []fence.Token{followed, followed + 1} {
		if got, err := mark(followed).Reset(floor, now); !errors.Is(err, fence.ErrInvalid) || got != mark(followed) {
			t.Errorf("from %d to %d: %+v, %v; want it as it was", followed, floor, got, err)
		}
	}
	for _, floor := range []fence.Token{-1, 0, fence.MaxToken, at(fence.DefaultMaxAhead)} {
		if got, err := mark(fence.MaxToken).Reset(floor, now); !errors.Is(err, fence.ErrInvalid) || got != mark(fence.MaxToken) {
			t.Errorf("to %d: %+v, %v; want it as it was", floor, got, err)
		}
	}
}

// TestAClockThatWasNeverSetMakesNoMarkDoubtful: a clock that shows a past time
// must not make valid tokens look made up.
func TestAClockThatWasNeverSetMakesNoMarkDoubtful(t *testing.T) {
	present := fence.Token(time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC).UnixMicro())
	for _, now := range []time.Time{time.Unix(60, 0), time.Date(2010, 1, 1, 0, 0, 0, 0, time.UTC)} {
		if err := fence.CheckAhead(present, now); err != nil || fence.Doubtful(present, now) {
			t.Errorf("at %s: %v", now, err)
		}
		if fence.CheckAhead(fence.MaxToken, now) == nil {
			t.Errorf("at %s the highest token is taken", now)
		}
	}
}
