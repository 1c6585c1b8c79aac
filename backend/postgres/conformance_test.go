package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/croft-dev/croft/backend/postgres"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/storetest"
)

// server is a database that tests share, and a pool on it. Each test has a
// schema of its own.
var server struct {
	sync.Once
	url  string
	pool *pgxpool.Pool
}

var schemas atomic.Int64

// shared returns the tests' common pool.
func shared(tb testing.TB) *pgxpool.Pool {
	tb.Helper()
	pg := testenv.Postgres(tb)
	server.Do(func() {
		server.url = pg.Database(tb)
		server.pool = pool(tb, server.url+"&pool_max_conns=40")
	})
	if server.pool == nil {
		tb.Fatal("the test before could not reach the server")
	}
	return server.pool
}

func pool(tb testing.TB, url string) *pgxpool.Pool {
	tb.Helper()
	p, err := pgxpool.New(context.Background(), url)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// schema returns a name that no other test uses.
func schema() string { return fmt.Sprintf("s%d", schemas.Add(1)) }

// A lot is a schema that no other test uses at the same time, and a pool that
// is used for this schema only. Every connection compiles the functions of
// every schema that it meets.
type lot struct {
	name string
	pool *pgxpool.Pool
}

// spare are lots that earlier checks have emptied. Making a new one takes
// longer than most checks.
var spare struct {
	sync.Mutex
	lots []lot
}

// empty returns a lot without any rows.
func empty(tb testing.TB) lot {
	shared(tb)
	spare.Lock()
	defer spare.Unlock()
	var own lot
	if n := len(spare.lots); n > 0 {
		own, spare.lots = spare.lots[n-1], spare.lots[:n-1]
	} else {
		own = lot{schema(), pool(tb, server.url+"&pool_max_conns=20")}
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			return // it may still be in use
		}
		own.wipe(tb)
		spare.Lock()
		defer spare.Unlock()
		spare.lots = append(spare.lots, own)
	})
	return own
}

func (l lot) wipe(tb testing.TB) {
	tb.Helper()
	var made bool
	if err := l.pool.QueryRow(context.Background(), "SELECT to_regclass($1) IS NOT NULL", l.name+".lease").Scan(&made); err != nil {
		tb.Fatal(err)
	}
	if !made {
		return // nothing has been asked of it yet
	}
	text := strings.ReplaceAll("DELETE FROM s.lease; DELETE FROM s.past; DELETE FROM s.waiter; UPDATE s.housekeeping SET swept_to = ''", "s.", l.name+".") + wipeLedger(l.name)
	if _, err := l.pool.Exec(context.Background(), text); err != nil {
		tb.Fatal(err)
	}
}

func place(tb testing.TB, now func() time.Time, advance func(time.Duration)) storetest.Harness {
	own := empty(tb)
	return storetest.Harness{
		Open: func(_ testing.TB, o storetest.Options) store.Store {
			// No sweeping: the suite's oracle does not know when records go.
			return postgres.New(own.pool, postgres.At(now, &postgres.Options{Schema: own.name, Retention: o.Retention, LockWait: 10 * time.Second, SweepEvery: -1}))
		},
		Wipe:    own.wipe,
		Advance: advance,
		Slow:    true,
	}
}

// TestConformance holds the store to the laws in which time has a part, by the
// server's own clock, which it reads after it has locked a row.
func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.RunTimed(t, func(tb testing.TB) storetest.Harness { return place(tb, nil, nil) })
}

// TestConformanceUnderASetClock holds the store to every law of a lease store,
// also at the very edges of deadlines.
func TestConformanceUnderASetClock(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(tb testing.TB) storetest.Harness {
		clock := storetest.NewClock()
		return place(tb, clock.Now, clock.Advance)
	})
}
