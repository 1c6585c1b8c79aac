package fence_test

import (
	"errors"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
)

// TestAMadeUpTokenIsRefused: the bound is a year, and it can be set.
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

// TestAStampIsCheckedAgainstTheClock, and by its form first.
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

// TestRekeyLowersAMadeUpFloor to the present moment, and no other.
func TestRekeyLowersAMadeUpFloor(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	present := fence.Token(now.UnixMicro())
	for from, want := range map[fence.Token]fence.Token{
		0: 0, 7: 7, present: present, present + 1: present + 1,
		fence.Token(now.Add(fence.DefaultMaxAhead).UnixMicro()): fence.Token(now.Add(fence.DefaultMaxAhead).UnixMicro()),
		fence.MaxToken: present, 1 << 52: present,
	} {
		got, err := fence.Mark{Key: "k", Token: from, Grant: "g", Seq: 3}.Rekey("k", now)
		if err != nil || got != (fence.Mark{Key: "k", Token: want}) {
			t.Errorf("from %d: %+v, %v; want the floor %d", from, got, err, want)
		}
	}
}
