package postgres_test

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/croft-dev/croft/backend/postgres"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/tenure"
)

// TestNothingIsLeftOfTwentyThousandKeys: neither the server nor the client
// keeps anything of a key that is gone.
func TestNothingIsLeftOfTwentyThousandKeys(t *testing.T) {
	st, name := fresh(t, postgres.Options{Retention: time.Second})
	must(t, st, then(tenure.Release, func() tenure.Request { mine := claim("leak/first", "ann"); must(t, st, mine); return mine }()))
	rows := func() (n int64) {
		for _, table := range []string{"lease", "past", "waiter", "fence"} {
			n += number(t, "SELECT count(*) FROM "+name+"."+table)
		}
		return n
	}
	forgotten := func() {
		t.Helper()
		testenv.Eventually(t, "all is forgotten", func() error {
			if _, err := st.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := rows(); n != 0 {
				return fmt.Errorf("%d rows are left", n)
			}
			return nil
		})
	}
	forgotten()
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // the second frees objects with finalizers
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	const batch = 500
	use := func(from, to int) {
		for n := from; n < to; n += batch {
			var claims, releases []tenure.Request
			for k := range batch {
				mine := claim(fmt.Sprintf("leak/%d", n+k), "ann")
				claims, releases = append(claims, mine), append(releases, then(tenure.Release, mine))
			}
			apply := func(requests []tenure.Request) {
				for _, a := range st.Apply(t.Context(), requests) {
					if a.Err != nil {
						t.Fatal(a.Err)
					}
				}
			}
			apply(claims)
			if n%4000 == 0 {
				wanted(t, name, claims[:100])
			}
			apply(releases)
		}
	}
	use(0, 4000) // connections keep statements and buffers from now on
	forgotten()
	goroutines := runtime.NumGoroutine()
	connections := func() int64 {
		return number(t, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
	}
	connected, before := connections(), heap()
	use(4000, 20_000)
	forgotten()
	testenv.Eventually(t, "goroutines end", func() error {
		if n := runtime.NumGoroutine(); n > goroutines+2 {
			return fmt.Errorf("%d goroutines, there were %d", n, goroutines)
		}
		return nil
	})
	testenv.Eventually(t, "the heap is as it was", func() error {
		if after := heap(); after > before+1<<20 { // 16,000 keys at 64 bytes
			return fmt.Errorf("the heap has %d bytes, it had %d", after, before)
		}
		return nil
	})
	testenv.Eventually(t, "connections end", func() error {
		if n := connections(); n > connected+2 { // the pool keeps some
			return fmt.Errorf("%d connections, there were %d", n, connected)
		}
		return nil
	})
}

// wanted lets a client wait for held keys, and give up.
func wanted(t *testing.T, schema string, held []tenure.Request) {
	st := postgres.New(shared(t), &postgres.Options{Schema: schema})
	defer st.Close()
	for _, req := range held {
		waitsFor(t, st, req.Key)
	}
	if n := number(t, "SELECT count(*) FROM "+schema+".waiter"); n != int64(len(held)) {
		t.Errorf("a client that waits for %d keys is entered for %d", len(held), n)
	}
}

// TestHousekeepingHappensByItself: clients sweep now and then after a grant.
// Each sweeps a part, and together they sweep everything.
func TestHousekeepingHappensByItself(t *testing.T) {
	t.Parallel()
	st, name := fresh(t, postgres.Options{Retention: time.Millisecond, SweepEvery: 1})
	for n := range 20 {
		mine := claim(fmt.Sprintf("sweep/%d", n), "ann")
		must(t, st, mine)
		must(t, st, then(tenure.Release, mine))
	}
	testenv.Eventually(t, "old records go", func() error {
		mine := claim("sweep/again", "ann")
		must(t, st, mine)
		must(t, st, then(tenure.Release, mine))
		if n := number(t, "SELECT count(*) FROM "+name+".lease WHERE key <> 'sweep/again'"); n > 0 {
			return errors.New("some are left")
		}
		return nil
	})
}
