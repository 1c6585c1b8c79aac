package postgres_test

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/croft-dev/croft/backend/postgres"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/storetest"
	"github.com/croft-dev/croft/tenure"
)

// flaws are errors that the functions could have. Each names the group of the
// suite that has to notice it.
var flaws = []struct{ name, group, function, old, change string }{
	{"anybody releases alone", "transitions", "release_v1", "l.key = k AND l.grant_id = g AND", "l.key = k AND"},
	{"anybody releases in a batch", "sequences", "apply_v1", "IF alive AND r.grant_id = g THEN\n                    r.state", "IF alive THEN\n                    r.state"},
	{"a lease is released after its deadline", "transitions", "release_v1", "AND l.deadline > now_us", ""},
	{"anybody renews", "transitions", "apply_v1", "IF known AND r.state = 'held' AND (alive", "IF present AND r.state = 'held' AND (alive"},
	{"a lease is renewed after its deadline", "deadlines", "apply_v1", "(alive OR resumes[n])", "true"},
	{"nothing is resumed", "repeats", "apply_v1", "(alive OR resumes[n])", "alive"},
	{"a held key is granted", "transitions", "acquire_v1", "AND l.state = 'free' AND l.ended <> ''", ""},
	{"tokens stay the same", "tokens", "acquire_v1", "greatest(l.token + 1, now_us)", "l.token"},
	{"tokens are a clock and no counter", "tokens", "acquire_v1", "greatest(l.token + 1, now_us)", "now_us"},
	{"above is ignored", "tokens", "apply_v1", "greatest(aboves[n] + 1, 1, now_us)", "greatest(1, now_us)"},
	{"a secret is granted twice", "repeats", "acquire_v1", "AND l.grant_id <> g AND NOT croft.short(g) = ANY (l.spent) AND l.token", "AND l.token"},
	{"a secret of the past is granted again", "repeats", "acquire_v1", "spent = croft.short(l.grant_id) || l.spent[:30]", "spent = '{}'"},
	{"the history is not kept", "history", "release_v1", "FROM freed\n", "FROM freed WHERE false\n"},
	{"the history of what expired is not kept", "history", "apply_v1", "overs := array_append(overs, o);\n                END IF;", "END IF;"},
	{"a shorter renewal takes time back", "deadlines", "apply_v1", "IF due > r.deadline OR now_us < r.renewed THEN", "IF true THEN"},
	{"a reservation is for everybody", "reservations", "apply_v1", "AND r.owner <> owners[n])", "AND false)"},
	{"a hold is not kept", "periods", "acquire_v1", "AND (l.hold_until IS NULL OR l.hold_until <= now_us)", ""},
	{"a failure counts as success", "periods", "release_v1", "CASE WHEN failure THEN l.succeeded ELSE l.acquired END", "l.acquired"},
	{"the operator's word is lost", "reservations", "apply_v1", "r.actor := actors[n]; r.note := notes[n];", "r.actor := 'x'; r.note := 'y';"},
	{"records leave too early", "retention", "sweep_v1", "greatest(l.deadline, l.acquired, l.renewed, l.hold_until, l.token, l.succeeded + l.every)", "l.deadline"},
	{"a checkpoint is not kept", "checkpoints", "apply_v1", "progress_at = c.progress_at, checkpoint = c.checkpoint,", "progress_at = c.progress_at,"},
	{"a checkpoint is not told to the next holder", "checkpoints", "acquire_v1", "coalesce(l.grid::text, ''), l.checkpoint)", "coalesce(l.grid::text, ''), '')"},
	{"a new record has another key's checkpoint", "checkpoints", "apply_v1", "r.checkpoint := ''; ", ""},
	{"a release wakes nobody", "watch", "release_v1", "IF told THEN", "IF false THEN"},
}

// broken replaces a function of a schema by one with a flaw. mend restores the
// function.
func broken(tb testing.TB, name, function, old, change string) (mend func()) {
	tb.Helper()
	text := functionText(tb, function)
	if n := strings.Count(text, old); n != 1 {
		tb.Fatalf("%q occurs %d times in %s", old, n, function)
	}
	use := func(text string) {
		tb.Helper()
		text = regexp.MustCompile(`\bcroft\b`).ReplaceAllString(text, name)
		if _, err := shared(tb).Exec(context.Background(), text); err != nil {
			tb.Fatalf("%s: %v", function, err)
		}
	}
	use(strings.Replace(text, old, change, 1))
	return func() { use(text) }
}

// functionText is the statement that makes a function.
func functionText(tb testing.TB, function string) string {
	tb.Helper()
	_, text, found := strings.Cut(postgres.Schema(), "CREATE OR REPLACE FUNCTION croft."+function+"(")
	if !found {
		tb.Fatalf("there is no function %s", function)
	}
	text, _, _ = strings.Cut(text, "\n$$;")
	return "CREATE OR REPLACE FUNCTION croft." + function + "(" + text + "\n$$;"
}

// TestFunctionsBrokenOnPurposeAreCaught: the suite that the functions pass
// notices every flaw.
func TestFunctionsBrokenOnPurposeAreCaught(t *testing.T) {
	t.Parallel()
	shared(t)
	idle := make(chan lot, len(flaws)) // schemas that are mended, for the next flaw
	for _, f := range flaws {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			var own lot
			select {
			case own = <-idle:
			default:
				own = lot{schema(), pool(t, server.url+"&pool_max_conns=20")}
				st := postgres.New(own.pool, &postgres.Options{Schema: own.name})
				if _, err := st.Now(t.Context()); err != nil { // makes the schema
					t.Fatal(err)
				}
				st.Close()
			}
			mend := broken(t, own.name, f.function, f.old, f.change)
			caught := false
			failures := storetest.Failures(t, func(tb testing.TB) storetest.Harness {
				if caught {
					tb.SkipNow() // one check is enough
				}
				tb.Cleanup(func() { caught = tb.Failed() })
				clock := storetest.NewClock()
				own.wipe(tb)
				return storetest.Harness{
					Open: func(_ testing.TB, o storetest.Options) store.Store {
						return postgres.New(own.pool, postgres.At(clock.Now, &postgres.Options{Schema: own.name, Retention: o.Retention, LockWait: 10 * time.Second, SweepEvery: -1}))
					},
					Wipe: own.wipe, Advance: clock.Advance,
					Slow: true, Patience: 300 * time.Millisecond, // nobody waits long for a wake-up that does not come
				}
			}, f.group)
			if len(failures) == 0 {
				t.Errorf("%s: the suite has not noticed", f.name)
			}
			for check, said := range failures {
				t.Logf("caught by %q: %s", check, said[0])
			}
			mend()
			idle <- own
		})
	}
}

// TestAReleaseThatWaitedBehindALockIsNotAcceptedLate: it was sent in time, but
// got the lock after the deadline. A function that uses the time before its
// lock accepts it.
func TestAReleaseThatWaitedBehindALockIsNotAcceptedLate(t *testing.T) {
	t.Parallel()
	st, name := fresh(t, postgres.Options{LockWait: testenv.Patience})
	accepted := func() bool {
		mine := claim("blocked/release/"+string(tenure.NewSecret()), "ann")
		mine.TTL = time.Second
		granted := must(t, st, mine)
		letGo := blocked(t, name, mine.Key)
		answer := make(chan store.Answer, 1)
		go func() { answer <- one(t.Context(), st, then(tenure.Release, mine)) }()
		waits(t, name, 1)
		testenv.Eventually(t, "the lease expires", func() error {
			if now(t, st).Before(granted.Record.Deadline) {
				return errors.New("it lives")
			}
			return nil
		})
		letGo()
		return (<-answer).Err == nil
	}
	if accepted() {
		t.Error("a release that came through after the deadline was accepted")
	}
	broken(t, name, "release_v1", "set_config('lock_timeout', '20ms', true)", "set_config('lock_timeout', '1min', true)")
	for range 10 { // until the machine is fast enough to send it in time
		if accepted() {
			return
		}
	}
	t.Error("the flaw was not noticed")
}

// TestNoTermBeginsBeforeTheOneBeforeItHasEnded: this holds however requests
// meet at one row. The short functions read their clock before the lock.
func TestNoTermBeginsBeforeTheOneBeforeItHasEnded(t *testing.T) {
	t.Parallel()
	st, name := fresh(t, postgres.Options{SweepEvery: -1})
	meets := func() bool {
		mine := claim("order/"+string(tenure.NewSecret()), "ann")
		must(t, st, mine)
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for n := 0; n < 12; {
					next := claim(mine.Key, "bob")
					if a := one(t.Context(), st, next); a.Err != nil {
						continue
					}
					n++
					must(t, st, then(tenure.Release, next))
				}
			})
		}
		must(t, st, then(tenure.Release, mine))
		all.Wait()
		rec, err := st.Get(t.Context(), mine.Key)
		if err != nil {
			t.Fatal(err)
		}
		for i := 1; i < len(rec.History); i++ {
			if rec.History[i].Acquired.Before(rec.History[i-1].Finished) {
				return true
			}
		}
		return false
	}
	for range 5 {
		if meets() {
			t.Fatal("a term began before the one before it had ended")
		}
	}
	broken(t, name, "acquire_v1", "now_us BETWEEN l.deadline AND max_token", "now_us <= max_token")
	for range 200 {
		if meets() {
			return
		}
	}
	t.Error("the flaw was not noticed")
}
