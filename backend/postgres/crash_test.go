package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/croft-dev/croft/backend/postgres"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard/guardtest"
	"github.com/croft-dev/croft/internal/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

const (
	crowdSize = 32
	crowdKeys = 8
)

// crowd is many clients that take turns at a few keys and write under each through a guard, and a judge who watches them.
type crowd struct {
	t     *testing.T
	pool  *pgxpool.Pool
	guard [crowdKeys]*postgres.Guard
	clock atomic.Int64
	turns [crowdSize]atomic.Int64

	mu      sync.Mutex
	newest  [crowdKeys]fence.Token                 // the newest grant that a client was told of
	granted [crowdKeys]map[fence.Token]fence.Grant // what was told
	writes  [crowdKeys][]guardtest.Event
}

// live is one client: it acquires, renews, writes and releases until it is told to stop, and asks again whatever it is not told.
func (c *crowd) live(ctx, stop context.Context, st store.Store, n int) {
	for turn := 0; stop.Err() == nil; turn++ {
		k := (n + turn) % crowdKeys
		mine := claim(fmt.Sprintf("crowd/%d", k), fmt.Sprintf("client %d", n))
		mine.TTL = time.Second // of whoever is cut off in the middle, the others wait for this
		c.mu.Lock()
		before := c.newest[k]
		c.mu.Unlock()
		a := resolve(ctx, st, mine)
		if a.Err != nil {
			c.refused(a.Err, tenure.ErrHeld)
			continue
		}
		c.judge(k, before, a.Record)
		c.write(ctx, k, a.Record.Stamp())
		if a := resolve(ctx, st, then(tenure.Renew, mine)); a.Err != nil {
			c.refused(a.Err, nil)
		}
		c.write(ctx, k, a.Record.Stamp())
		if a := resolve(ctx, st, then(tenure.Release, mine)); a.Err != nil {
			c.refused(a.Err, nil)
		}
		c.turns[n].Add(1)
	}
}

// refused makes sure that an answer is one that a client may get: it was too slow, or the key is taken.
func (c *crowd) refused(err, allowed error) {
	var lost *tenure.NotOwnedError
	switch {
	case allowed != nil && errors.Is(err, allowed):
	case errors.As(err, &lost) && (lost.Why == tenure.WhyExpired || lost.Why == tenure.WhySuperseded):
	default:
		c.t.Errorf("a client was told: %v", err)
	}
}

// judge holds a grant against all others: laws 1 and 2.
func (c *crowd) judge(k int, before fence.Token, rec tenure.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if rec.Token <= before {
		c.t.Errorf("key %d: token %d was granted to a request sent after %d was", k, rec.Token, before)
	}
	if other, taken := c.granted[k][rec.Token]; taken && other != rec.Grant {
		c.t.Errorf("key %d: token %d belongs to two grants", k, rec.Token)
	}
	c.granted[k][rec.Token] = rec.Grant
	c.newest[k] = max(c.newest[k], rec.Token)
}

// write makes a guarded write and keeps what is known of it for law 3. One that failed on the way may or may not have been made.
func (c *crowd) write(ctx context.Context, k int, stamp fence.Stamp) {
	e := guardtest.Event{Kind: guardtest.Write, Token: stamp.Token, Who: fmt.Sprint(stamp.Token), Begin: c.clock.Add(1)}
	err := pgx.BeginFunc(ctx, c.pool, func(tx pgx.Tx) error {
		if err := c.guard[k].Admit(ctx, tx, stamp); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "UPDATE artifact SET token = $2 WHERE id = $1", k, int64(stamp.Token))
		return err
	})
	e.End = c.clock.Add(1)
	if err == nil {
		c.mu.Lock()
		c.writes[k] = append(c.writes[k], e)
		c.mu.Unlock()
	} else if errors.Is(err, fence.ErrCollision) || errors.Is(err, fence.ErrWrongKey) {
		c.t.Errorf("a guarded write: %v", err)
	}
}

// everybodyHas waits until every client has had so many turns since it was asked.
func (c *crowd) everybodyHas(more int64) {
	c.t.Helper()
	var due [crowdSize]int64
	for n := range due {
		due[n] = c.turns[n].Load() + more
	}
	testenv.Eventually(c.t, "every client gets on by itself", func() error {
		for n := range due {
			if c.turns[n].Load() < due[n] {
				return fmt.Errorf("client %d is stuck", n)
			}
		}
		return nil
	})
}

// TestNoLawIsBrokenWhenTheServerIsKilled, again and again, while many acquire, renew, write and release; and everybody recovers without help.
func TestNoLawIsBrokenWhenTheServerIsKilled(t *testing.T) {
	t.Parallel()
	pg := testenv.NewPostgres(t)
	url := pg.Database(t)
	p := pool(t, url+"&pool_max_conns=20")
	t.Cleanup(p.Close)
	if _, err := p.Exec(t.Context(), fmt.Sprintf("CREATE TABLE artifact (id int PRIMARY KEY, token bigint); INSERT INTO artifact SELECT generate_series(0, %d)", crowdKeys-1)); err != nil {
		t.Fatal(err)
	}
	c := &crowd{t: t, pool: p}
	for k := range crowdKeys {
		c.granted[k] = map[fence.Token]fence.Grant{}
		g, err := postgres.NewGuard(p, postgres.FenceRow{Name: fmt.Sprintf("artifact/%d", k)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		c.guard[k] = g
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*testenv.Patience)
	defer cancel()
	stop, enough := context.WithCancel(ctx)
	defer enough()
	var all sync.WaitGroup
	for n := range crowdSize {
		st := postgres.New(p, nil)
		t.Cleanup(func() { st.Close() })
		all.Go(func() { c.live(ctx, stop, st, n) })
	}
	for range 2 {
		c.everybodyHas(1)
		pg.Kill(t)
		pg.Start(t)
	}
	c.everybodyHas(1)
	enough()
	all.Wait()
	for k := range crowdKeys {
		for _, broken := range guardtest.Law3(c.writes[k]) {
			t.Errorf("key %d: law 3 is broken: %s", k, broken)
		}
		var mark, last int64
		if err := p.QueryRow(ctx, "SELECT f.fence_token, a.token FROM croft.fence f, artifact a WHERE f.name = $1 AND a.id = $2", fmt.Sprintf("artifact/%d", k), k).Scan(&mark, &last); err != nil {
			t.Fatal(err)
		}
		if mark != last {
			t.Errorf("artifact %d is of %d and its mark of %d: they are written in one step", k, last, mark)
		}
	}
}
