package httpfence

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/croft-dev/croft/fence"
)

// A story is a list of moves: takeovers, writes of present and past owners, and
// faults. It is played in virtual time against a real proxy, with a network in
// memory. The times of takeovers and of admitted writes are therefore exact.
//
// Each takeover has a bound: the moment from which the proxy must refuse the
// replaced owners. It is the moment at which the proxy was told. If it was not
// told, the bound is as late as answers may be old.

// move is one step of a story.
type move struct {
	what  string
	owner int           // whose write, counted back from the newest
	d     time.Duration // how long
}

func (m move) String() string { return fmt.Sprintf("%s %d %s", m.what, m.owner, m.d) }

// The moves. Faults last until the move that ends them.
const (
	writes    = "write"     // an owner sends a write
	takesOver = "take over" // an operator takes the key, and writes from now on
	waits     = "wait"      // for d
	pauses    = "pause"     // the follower stands still: announcements come d later
	cuts      = "cut"       // the channel for announcements breaks, and cannot be had again
	mends     = "mend"      // it can be had again
	loses     = "lose"      // announcements get lost unnoticed
	finds     = "find"      // they no longer do
	leaves    = "leave"     // the store cannot be reached
	hangs     = "hang"      // the store does not answer
	returns   = "return"    // the store answers again
	slows     = "slow"      // from now on an answer of the store takes d
	works     = "work"      // from now on the service takes d for a write
	breaks    = "break"     // the service breaks the connection of the next write
	restarts  = "restart"   // another proxy process takes over
)

var stories = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) move {
	return move{
		what: rapid.SampledFrom([]string{
			writes, writes, writes, writes, writes, writes, takesOver, takesOver, takesOver, waits, waits, waits,
			pauses, cuts, mends, loses, finds, leaves, hangs, returns, returns, slows, works, breaks, restarts, restarts,
		}).Draw(t, "what"),
		owner: rapid.IntRange(0, 2).Draw(t, "owner"),
		d: rapid.SampledFrom([]time.Duration{
			0, time.Millisecond, 500 * time.Millisecond, time.Second, time.Second + 1, 3 * time.Second, 9 * time.Second,
			11 * time.Second,
		}).Draw(t, "d"),
	}
}), 1, 40)

// These are the follower's limits.
const (
	maxAge       = 10 * time.Second
	maxSilentAge = time.Second
	askTimeout   = 2 * time.Second
)

// takeover is one takeover of the key.
type takeover struct {
	token fence.Token
	at    time.Time
	bound time.Time // from then on older owners must be refused
	told  bool      // the follower was told
	heard bool      // the channel was live at the time
}

// admittedWrite is a write that the proxy has let in.
type admittedWrite struct {
	token  fence.Token
	at     time.Time
	unsure bool // the store did not say, and the mark decided
}

// TestNoReplacedOwnerIsLetInForAnyInterleaving: for any story of takeovers,
// writes, pauses and lost connections, a replaced owner is not let in later
// than the notification delay, and never after a successor's write.
func TestNoReplacedOwnerIsLetInForAnyInterleaving(t *testing.T) {
	t.Parallel()
	for name, admit := range map[string]bool{"refuse when unsure": false, "admit when unsure": true} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(r *rapid.T) {
				if err := play(t, admit, none, stories.Draw(r, "story")); err != nil {
					r.Fatal(err)
				}
			})
		})
	}
}

// TestStoriesFindABrokenProxy: a proxy without the current check, without the
// mark, or with too much trust in old answers breaks its promise in some story.
// A proxy that is whole keeps it in the same stories.
func TestStoriesFindABrokenProxy(t *testing.T) {
	t.Parallel()
	owner, replaced := move{what: writes}, move{what: writes, owner: 1}
	for broken, c := range map[flaw]struct {
		story  []move
		told   string
		random bool // random stories find it soon, too
	}{
		unchecked: {
			[]move{owner, {what: takesOver}, {what: waits, d: 1}, replaced}, "after the proxy had to know", true,
		},
		forgetful: {
			[]move{owner, {what: takesOver}, owner, {what: restarts}, {what: leaves}, replaced},
			"the service saw a write", true,
		},
		trusting: {
			[]move{owner, {what: loses}, {what: takesOver}, {what: waits, d: maxAge + 1}, replaced},
			"after the proxy had to know", false,
		},
	} {
		t.Run(string(broken), func(t *testing.T) {
			if err := play(t, true, none, c.story); err != nil {
				t.Errorf("a proxy that is whole: %v", err)
			}
			if err := play(t, true, broken, c.story); err == nil || !strings.Contains(err.Error(), c.told) {
				t.Errorf("the story found %v", err)
			}
			for seed := 0; c.random; seed++ {
				if err := play(t, true, broken, stories.Example(seed)); err != nil && strings.Contains(err.Error(), c.told) {
					break
				}
				if seed == 500 {
					t.Fatal("no random story found it")
				}
			}
		})
	}
}
