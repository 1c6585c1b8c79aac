package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/storetest"
	"github.com/croft-dev/croft/tenure"
)

// variant returns the store's script with one part changed.
func variant(tb testing.TB, old, change string) *script {
	tb.Helper()
	source := strings.Replace(applySource, old, change, 1)
	if source == applySource {
		tb.Fatalf("the script does not say %q any more", old)
	}
	return newScript(source)
}

// failover is a primary that loses a grant it has confirmed, and a replica that
// takes over without it. The replica's clock is behind.
type failover struct {
	primary, replica *testenv.RedisServer
	before, after    *Store // the store on each
	clock, behind    *storetest.Clock
	guard            *Guard // on a server that stays
}

func newFailover(t *testing.T, lua *script, skew time.Duration) *failover {
	t.Helper()
	f := &failover{clock: storetest.NewClock(), behind: storetest.NewClock()}
	f.advance(time.Since(f.clock.Now()))
	f.behind.Advance(-skew)
	f.primary, f.replica = testenv.RedisPair(t)
	f.before, f.after = New(dial(t, f.primary), nil), New(dial(t, f.replica), nil)
	f.before.apply, f.after.apply = lua, lua
	f.before.clock, f.after.clock = f.clock.Now, f.behind.Now
	shared := testenv.Redis(t)
	var err error
	if f.guard, err = OpenGuard(dial(t, shared), shared.Prefix()+"data", nil); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *failover) advance(d time.Duration) {
	f.clock.Advance(d)
	f.behind.Advance(d)
}

// confirmed makes a request that the primary answers and the replica gets.
func (f *failover) confirmed(t *testing.T, req tenure.Request) {
	t.Helper()
	if a := one(t.Context(), f.before, req); a.Err != nil {
		t.Fatal(a.Err)
	}
	testenv.Eventually(t, "the replica has it", func() error {
		want, err := f.before.Get(t.Context(), req.Key)
		if err != nil {
			return err
		}
		got, err := f.after.Get(t.Context(), req.Key)
		if err == nil && (got.Token != want.Token || got.State != want.State) {
			err = fmt.Errorf("it has token %d, %s", got.Token, got.State)
		}
		return err
	})
}

// lose makes a request that the primary confirms and the replica never gets.
// Then it lets time pass, and fails over.
func (f *failover) lose(t *testing.T, req tenure.Request, passing time.Duration) tenure.Record {
	t.Helper()
	f.replica.Pause(t)
	// Otherwise the data would wait for the replica in the socket.
	if _, err := f.primary.Ask("CLIENT", "KILL", "TYPE", "replica"); err != nil {
		t.Fatal(err)
	}
	a := one(t.Context(), f.before, req)
	if a.Err != nil {
		t.Fatal(a.Err)
	}
	f.primary.Kill()
	f.advance(passing)
	f.replica.Resume()
	f.replica.Promote(t)
	return a.Record
}

// take does what a holder does: it acquires, and raises the fence before the
// first read. If the fence has seen a newer token, it acquires again above
// that.
func (f *failover) take(ctx context.Context, owner string) (tenure.Record, error) {
	req := claim("jobs/nightly", owner)
	a := storetest.Resolve(ctx, f.after, req)
	if a.Err != nil {
		return a.Record, a.Err
	}
	_, err := f.guard.Raise(ctx, a.Record.Stamp())
	var stale *fence.StaleError
	if !errors.As(err, &stale) {
		return a.Record, err
	}
	if a := storetest.Resolve(ctx, f.after, then(tenure.Release, req)); a.Err != nil {
		return a.Record, a.Err
	}
	req = claim("jobs/nightly", owner)
	req.Above = stale.Newest.Token
	if a = storetest.Resolve(ctx, f.after, req); a.Err != nil {
		return a.Record, a.Err
	}
	_, err = f.guard.Raise(ctx, a.Record.Stamp())
	return a.Record, err
}

// lostGrant plays the failover and says which promise it broke. Tokens must
// rise above every token that was issued longer ago than the clocks differ, and
// the guard must refuse the stale owner.
func lostGrant(t *testing.T, lua *script, skew, passing time.Duration, wrote bool) error {
	f, ctx := newFailover(t, lua, skew), t.Context()
	first := claim("jobs/nightly", "zoe")
	f.confirmed(t, first)
	f.confirmed(t, then(tenure.Release, first))
	f.advance(time.Millisecond)
	stale := f.lose(t, claim("jobs/nightly", "ann"), passing)
	if wrote {
		if _, err := f.guard.Write(ctx, stale.Stamp(), strings.NewReader("of ann")); err != nil {
			t.Fatal(err)
		}
	}
	rec, err := f.take(ctx, "bob")
	if err != nil {
		return fmt.Errorf("the next owner cannot begin: %w", err)
	}
	if rec.Token <= stale.Token {
		return fmt.Errorf("the next owner has token %d, the one that was lost was %d", rec.Token, stale.Token)
	}
	if _, err := f.guard.Write(ctx, stale.Stamp(), strings.NewReader("of ann, late")); !errors.Is(err, fence.ErrStale) {
		return fmt.Errorf("the stale owner writes: %w, want a refusal", err)
	}
	if _, err := f.guard.Write(ctx, rec.Stamp(), strings.NewReader("of bob")); err != nil {
		return fmt.Errorf("the next owner cannot write: %w", err)
	}
	return nil
}

var failovers = []struct {
	name          string
	skew, passing time.Duration
	wrote         bool
}{
	{"clocks agree", 0, time.Millisecond, false},
	{"clocks agree, the lost owner wrote", 0, time.Millisecond, true},
	{"clock behind by 5 s, the grant is older", 5 * time.Second, 5*time.Second + time.Millisecond, false},
	{"clock behind by 5 s, the grant is younger, the lost owner wrote", 5 * time.Second, time.Millisecond, true},
}

// TestAGrantLostInAFailoverIsOutranked checks that the owner of a lost grant is
// shut out.
func TestAGrantLostInAFailoverIsOutranked(t *testing.T) {
	t.Parallel()
	for _, c := range failovers {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if err := lostGrant(t, applyScript(), c.skew, c.passing, c.wrote); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestTokensThatOnlyCountAreCaught plays the failover with tokens that do not
// follow the clock. The promoted replica issues the lost token again, and the
// play must notice it.
func TestTokensThatOnlyCountAreCaught(t *testing.T) {
	t.Parallel()
	counting := variant(t, "above + 1, now)", "above + 1)")
	for _, c := range failovers {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if lostGrant(t, counting, c.skew, c.passing, c.wrote) == nil {
				t.Error("tokens of a mere counter went through")
			}
		})
	}
}

// TestWaitingForReplicasMakesALossUnknown checks that a change which no replica
// has confirmed is unknown, also when another connection asks for it again.
func TestWaitingForReplicasMakesALossUnknown(t *testing.T) {
	t.Parallel()
	primary, replica := testenv.RedisPair(t)
	ctx := t.Context()
	st := New(dial(t, primary), &Options{WaitReplicas: 1, WaitTimeout: 100 * time.Millisecond})
	held := claim("wait/held", "ann")
	if a := storetest.Resolve(ctx, st, held); a.Err != nil {
		t.Fatal(a.Err)
	}
	replica.Pause(t)
	mine := claim("wait/mine", "ann")
	explained := false
	for range 3 {
		another := New(dial(t, primary), &Options{WaitReplicas: 1, WaitTimeout: 50 * time.Millisecond})
		a := one(ctx, another, mine)
		if !errors.Is(a.Err, store.ErrUnknown) {
			t.Fatalf("a grant that no replica has: %v, want unknown", a.Err)
		}
		explained = explained || strings.Contains(a.Err.Error(), "0 of 1 replicas")
	}
	if !explained {
		t.Error("nobody was told that no replica has it")
	}
	if a := one(ctx, st, claim("wait/held", "bob")); !errors.Is(a.Err, tenure.ErrHeld) {
		t.Errorf("a refusal needs no replica: %v", a.Err)
	}
	replica.Resume()
	if a := storetest.Resolve(ctx, st, mine); a.Err != nil || a.Record.Terms != 1 {
		t.Errorf("when the replica is back: %v in term %d", a.Err, a.Record.Terms)
	}
}
