package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// onRedis makes a workload of a contest on Redis.
func onRedis(
	rivals func(e *engine) []rival,
	run func(ctx context.Context, c *contest, t *table) error,
) func(ctx context.Context, b *bench) error {
	return func(ctx context.Context, b *bench) error {
		e, err := b.redis()
		if err != nil {
			return err
		}
		if err := emptyRedis(ctx, e); err != nil {
			return err
		}
		return b.contest(ctx, e, rivals(e), run)
	}
}

// onPostgres makes a workload of a contest on PostgreSQL.
func onPostgres(
	rivals func(e *engine) []rival,
	run func(ctx context.Context, c *contest, t *table) error,
) func(ctx context.Context, b *bench) error {
	return func(ctx context.Context, b *bench) error {
		e, err := b.postgres(ctx)
		if err != nil {
			return err
		}
		return b.contest(ctx, e, rivals(e), run)
	}
}

func (b *bench) contest(
	ctx context.Context, e *engine, rivals []rival,
	run func(ctx context.Context, c *contest, t *table) error,
) error {
	t := b.newTable()
	if err := run(ctx, &contest{b, e, rivals}, t); err != nil {
		return err
	}
	b.add(t)
	return nil
}

// These functions list the rivals of each contest. The others are compared with
// the first.
func redisRivals(e *engine) []rival {
	return []rival{
		floorRedis(e), recordRedis(e), croftRedis(e), redislockRival(e), redsyncRival(e),
		rueidislockRival(e, false),
	}
}

func redisWaiters(e *engine) []rival {
	return []rival{
		croftRedis(e), croftRedisApart(e), redislockRival(e), redsyncRival(e),
		rueidislockRival(e, false), rueidislockRival(e, true),
	}
}

func redisHolders(e *engine) []rival {
	return []rival{croftRedis(e), redislockRival(e), redsyncRival(e), rueidislockRival(e, false)}
}

func postgresRivals(e *engine) []rival {
	return []rival{floorPostgres(e), croftPostgres(e, false), pglockRival(e, ttl), advisoryRival(e)}
}

func postgresWaiters(e *engine) []rival {
	return []rival{croftPostgres(e, false), croftPostgres(e, true), pglockRival(e, time.Second), advisoryRival(e)}
}

func postgresHolders(e *engine) []rival {
	return []rival{croftPostgres(e, false), pglockRival(e, ttl), advisoryRival(e)}
}

// peers returns the contenders that Croft aims to beat.
func (t *table) peers() (names []string) {
	for _, r := range t.Rows {
		if r.Name != floorName && !strings.HasPrefix(r.Name, croftName) && !strings.HasSuffix(r.Name, ", for scale") {
			names = append(names, r.Name)
		}
	}
	return names
}

// loneWithin measures lone, with an aim: at most that many times the floor.
func loneWithin(ratio float64) func(ctx context.Context, c *contest, t *table) error {
	return func(ctx context.Context, c *contest, t *table) error {
		if err := c.lone(ctx, t); err != nil {
			return err
		}
		t.atMost("latency to the floor", t.value(croftName, "ratio"), ratio)
		return nil
	}
}

// crowdAtLeast measures crowd, with two aims: the throughput to reach, and the
// CPU to use at most. 0 means no aim for the CPU.
func crowdAtLeast(throughput, cpu float64) func(ctx context.Context, c *contest, t *table) error {
	return func(ctx context.Context, c *contest, t *table) error {
		if err := c.crowd(ctx, t); err != nil {
			return err
		}
		t.atLeast("throughput to the floor", t.value(croftName, "ratio"), throughput)
		if cpu > 0 {
			t.atMost("CPU per operation to the floor", t.value(croftName, "cpu ratio"), cpu)
		}
		for _, peer := range t.peers() {
			t.atLeast("throughput to "+peer, t.value(croftName, "rate")/max(t.value(peer, "rate"), 1), 1)
		}
		return nil
	}
}

func handoffAmong(workers int) func(ctx context.Context, c *contest, t *table) error {
	return func(ctx context.Context, c *contest, t *table) error {
		if err := c.handoff(ctx, t, workers); err != nil {
			return err
		}
		for _, r := range t.Rows {
			if !strings.HasPrefix(r.Name, croftName) {
				continue
			}
			for _, peer := range t.peers() {
				// Compare clients that share their knowledge with such clients,
				// and those that share nothing with such.
				if strings.Contains(r.Name, "for each") != strings.Contains(peer, "for each") &&
					strings.HasPrefix(peer, "rueidis") {
					continue
				}
				if theirs := t.value(peer, "p50"); theirs > 0 {
					t.atMost(fmt.Sprintf("median of %s to %s", r.Name, peer), r.Values["p50"]/theirs, 1)
				}
			}
		}
		return nil
	}
}

func heldByMany(ctx context.Context, c *contest, t *table) error {
	if err := c.held(ctx, t); err != nil {
		return err
	}
	single := float64(c.b.kept) / renew.Seconds()
	t.Notes = append(t.Notes, fmt.Sprintf("one call for each lease and renewal would be %s commands/s", digits(single)))
	t.atLeast("commands saved against one call for each lease", single/max(t.value(croftName, "commands"), 1e-9), 100)
	return nil
}
