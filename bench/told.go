package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/croft-dev/croft"
	_ "github.com/croft-dev/croft/backend/dir"
	_ "github.com/croft-dev/croft/backend/etcd"
	_ "github.com/croft-dev/croft/backend/postgres"
	_ "github.com/croft-dev/croft/backend/redis"
	_ "github.com/croft-dev/croft/backend/sqlite"
)

// benchTold measures how long a holder goes on after an operator has begun to
// take its key. It does so on every store that announces operators' acts.
func benchTold(ctx context.Context, b *bench) error {
	stores, err := b.telling(ctx)
	if err != nil {
		return err
	}
	t := b.newTable()
	t.columns = []column{{"median", "median", asTime}, {"worst", "worst", asTime}}
	for _, st := range stores {
		took, err := told(ctx, st.url, b.rounds)
		if err != nil {
			return fmt.Errorf("%s: %w", st.name, err)
		}
		t.Rows = append(t.Rows, row{st.name, map[string]float64{
			"median": float64(median(took)), "worst": float64(slices.Max(took)),
		}})
	}
	t.Notes = append(t.Notes, "the aim is a median of at most 100 ms on each store",
		"SQLite hears of an act by another process up to 50 ms later")
	b.add(t)
	return nil
}

// namedStore is a running store. cpu tells the CPU time of its server, 0 if it
// has none.
type namedStore struct {
	name, url string
	cpu       func() time.Duration
}

// telling returns the stores that announce operators' acts.
func (b *bench) telling(ctx context.Context) ([]namedStore, error) {
	redis, err := b.redis()
	if err != nil {
		return nil, err
	}
	postgres, err := b.postgres(ctx)
	if err != nil {
		return nil, err
	}
	etcd, err := b.etcd(ctx)
	if err != nil {
		return nil, err
	}
	path, err := b.folder("told")
	if err != nil {
		return nil, err
	}
	none := func() time.Duration { return 0 }
	return []namedStore{
		{"Redis", "redis://" + redis.addr, redis.cpu},
		{"PostgreSQL", postgres.url, postgres.cpu},
		{"etcd", "etcd://" + strings.Join(etcd.hosts, ","), etcd.cpu},
		{"SQLite", "sqlite://" + path + "/told.db", none},
		{"directory", "dir://" + path + "/told", none},
	}, nil
}

// told takes a key away from its holder n times. It measures the time from the
// beginning of the takeover to the end of the holder's context.
func told(ctx context.Context, url string, n int) ([]time.Duration, error) {
	holder, err := croft.Open(ctx, url, nil)
	if err != nil {
		return nil, err
	}
	defer holder.Close()
	operator, err := croft.Open(ctx, url, nil)
	if err != nil {
		return nil, err
	}
	defer operator.Close()
	took := make([]time.Duration, n)
	for i := range took {
		key := fmt.Sprintf("told/%d", i)
		l, err := holder.Acquire(ctx, key, &croft.LeaseOptions{TTL: time.Minute})
		if err != nil {
			return nil, err
		}
		time.Sleep(500 * time.Millisecond) // by then it listens
		start := time.Now()
		if _, err := operator.Takeover(ctx, key, croft.ByHand{Note: "bench"}); err != nil {
			return nil, err
		}
		<-l.Done()
		took[i] = time.Since(start)
	}
	return took, nil
}
