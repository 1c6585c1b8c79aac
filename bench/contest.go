package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"
)

// contest compares the rivals on one server in one workload.
type contest struct {
	b      *bench
	engine *engine
	rivals []rival
}

// reading is a reading of all meters: CPU time used, and commands and round
// trips sent.
type reading struct {
	at              time.Time
	client, server  time.Duration
	commands, trips int64
}

func (c *contest) read(o *opened) reading {
	r := reading{
		server: c.engine.cpu(), client: cpuTime(), commands: o.meter.commands.Load(),
		trips: o.meter.trips.Load(),
	}
	r.at = time.Now()
	return r
}

// since returns the difference to an earlier reading.
func (c *contest) since(from reading, o *opened) reading {
	elapsed := time.Since(from.at)
	to := c.read(o)
	return reading{
		client: to.client - from.client, server: to.server - from.server,
		commands: to.commands - from.commands, trips: to.trips - from.trips,
		at: time.Time{}.Add(elapsed),
	}
}

func (r reading) elapsed() time.Duration { return r.at.Sub(time.Time{}) }

// medians collects values over rounds.
type medians map[string][]float64

func (m medians) add(key string, v float64) { m[key] = append(m[key], v) }

func (m medians) values() map[string]float64 {
	values := map[string]float64{}
	for key, all := range m {
		slices.Sort(all)
		values[key] = all[len(all)/2]
	}
	return values
}

// rounds lets the rivals alternate, after a warm-up round. In every round each
// runs for the span of the bench. run returns how many operations it did.
func (c *contest) rounds(
	ctx context.Context, t *table, workers int,
	run func(ctx context.Context, o *opened, until time.Time) (int, error),
) error {
	all, end, err := openAll(ctx, c.rivals, workers)
	if err != nil {
		return err
	}
	defer end()
	seen, stuck := make([]medians, len(all)), make([]int, len(all))
	for round := range c.b.rounds + 1 {
		for i := range all {
			if round%2 == 1 { // so that no rival always runs after the same one
				i = len(all) - 1 - i
			}
			if seen[i] == nil {
				seen[i] = medians{}
			}
			runtime.GC()
			from := c.read(all[i])
			bounded, cancel := context.WithTimeout(ctx, c.b.span+c.b.patience)
			if c.rivals[i].name == croftName { // Croft gets no such limit
				bounded = ctx
			}
			n, err := run(bounded, all[i], time.Now().Add(c.b.span))
			late := bounded.Err() != nil && ctx.Err() == nil
			cancel()
			if late {
				stuck[i]++
				// Workers may still hold keys. Wait until their leases end.
				select {
				case <-time.After(ttl):
				case <-ctx.Done():
				}
				continue
			}
			if err != nil {
				return fmt.Errorf("%s: %w", c.rivals[i].name, err)
			}
			got := c.since(from, all[i])
			if round == 0 {
				continue
			}
			ops := float64(n)
			seen[i].add("wall", float64(got.elapsed())/ops)
			seen[i].add("rate", ops/got.elapsed().Seconds())
			seen[i].add("client", float64(got.client)/ops)
			if got.server > 0 {
				seen[i].add("server", float64(got.server)/ops)
			}
			seen[i].add("cpu", float64(got.client+got.server)/ops)
			seen[i].add("commands", float64(got.commands)/ops)
			seen[i].add("trips", float64(got.trips)/ops)
		}
	}
	for i, r := range c.rivals {
		t.Rows = append(t.Rows, row{r.name, seen[i].values()})
		if stuck[i] > 0 {
			t.Notes = append(t.Notes, fmt.Sprintf(
				"%s did not get a free key within %s in %d of %d rounds; they are not counted",
				r.name, c.b.patience, stuck[i], c.b.rounds+1,
			))
		}
	}
	return nil
}

// lone measures one goroutine that acquires and releases one key.
func (c *contest) lone(ctx context.Context, t *table) error {
	err := c.rounds(ctx, t, 1, func(ctx context.Context, o *opened, until time.Time) (int, error) {
		return cycles(ctx, o.take(0), "lone", until)
	})
	t.rate("wall", "ratio")
	t.columns = []column{
		{"wall", "latency", asTime},
		{"ratio", "to the floor", asRatio},
		{"trips", "round trips", digits},
		{"commands", "commands", digits},
		{"client", "client CPU", asTime},
		{"server", "server CPU", asTime},
	}
	return err
}

// crowdSize is how many goroutines work at once, each on its own key.
const crowdSize = 64

// crowd measures many goroutines, each on its own key.
func (c *contest) crowd(ctx context.Context, t *table) error {
	err := c.rounds(ctx, t, crowdSize, func(ctx context.Context, o *opened, until time.Time) (int, error) {
		done := make([]int, crowdSize)
		err := together(crowdSize, func(w int) (err error) {
			done[w], err = cycles(ctx, o.take(w), fmt.Sprintf("crowd-%d", w), until)
			return err
		})
		sum := 0
		for _, n := range done {
			sum += n
		}
		return sum, err
	})
	t.rate("rate", "ratio")
	t.rate("cpu", "cpu ratio")
	t.columns = []column{
		{"rate", "per second", digits},
		{"ratio", "to the floor", asRatio},
		{"commands", "commands", digits},
		{"client", "client CPU", asTime},
		{"server", "server CPU", asTime},
		{"cpu ratio", "CPU to the floor", asRatio},
	}
	return err
}

// handoff measures the time from the beginning of a release to the return of
// the next acquire, by another worker. The key is held for holdFor each time.
func (c *contest) handoff(ctx context.Context, t *table, workers int) error {
	all, end, err := openAll(ctx, c.rivals, workers)
	if err != nil {
		return err
	}
	defer end()
	const rounds = 3
	samples := make([][]float64, len(all))
	used := make([]medians, len(all))
	for round := range min(rounds, c.b.rounds) {
		for i, o := range all {
			from := c.read(o)
			got, err := pass(ctx, o, fmt.Sprintf("pass-%d-%d", workers, round), workers, c.b.passes, c.b.passFor)
			if err != nil {
				return fmt.Errorf("%s: %w", c.rivals[i].name, err)
			}
			use := c.since(from, o)
			if used[i] == nil {
				used[i] = medians{}
			}
			for _, d := range got {
				samples[i] = append(samples[i], float64(d))
			}
			n := float64(max(len(got), 1))
			used[i].add("commands", float64(use.commands)/n)
			used[i].add("cpu", float64(use.client+use.server)/n)
		}
	}
	for i, r := range c.rivals {
		values := used[i].values()
		if got := samples[i]; len(got) > 0 {
			slices.Sort(got)
			values["p50"], values["p99"] = got[len(got)/2], got[len(got)*99/100]
		}
		values["seen"] = float64(len(samples[i]))
		t.Rows = append(t.Rows, row{r.name, values})
	}
	t.columns = []column{
		{"p50", "median", asTime},
		{"p99", "99 of 100", asTime},
		{"commands", "commands each", digits},
		{"cpu", "CPU each", asTime},
		{"seen", "hand-offs seen", func(v float64) string { return fmt.Sprintf("%.0f", v) }},
	}
	return nil
}

// holdFor is how long a key is held before it is handed on. The other workers
// have time to queue.
const holdFor = 2 * time.Millisecond

// pass hands a key around among workers, until it has been handed on passes
// times or the time is over. A worker that has released waits until another has
// acquired, so a hand-off is always to another worker.
func pass(
	ctx context.Context, o *opened, key string, workers, passes int, most time.Duration,
) ([]time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	var (
		mu       sync.Mutex
		samples  []time.Duration
		released time.Time
		next     = make(chan struct{}) // closed at the next acquire
	)
	err := together(workers, func(w int) error {
		for {
			give, err := o.take(w)(ctx, key)
			got := time.Now()
			if err != nil {
				if ctx.Err() != nil {
					return nil
				}
				cancel()
				return err
			}
			mu.Lock()
			if !released.IsZero() && ctx.Err() == nil {
				samples = append(samples, got.Sub(released))
			}
			close(next)
			next = make(chan struct{})
			enough := len(samples) >= passes
			mu.Unlock()
			if enough {
				cancel()
			} else {
				time.Sleep(holdFor)
			}
			mu.Lock()
			released = time.Now()
			taken := next
			mu.Unlock()
			if err := give(context.WithoutCancel(ctx)); err != nil {
				if ctx.Err() != nil {
					return nil
				}
				cancel()
				return err
			}
			select {
			case <-taken:
			case <-ctx.Done():
				return nil
			}
		}
	})
	return samples, err
}

// held measures the cost of keeping many leases with a TTL of 10 seconds.
func (c *contest) held(ctx context.Context, t *table) error {
	for _, r := range c.rivals {
		values, err := c.holdMany(ctx, r)
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		t.Rows = append(t.Rows, row{r.name, values})
	}
	t.columns = []column{
		{"commands", "commands/s", digits},
		{"trips", "round trips/s", digits},
		{"client", "client cores", asCores},
		{"server", "server cores", asCores},
	}
	return nil
}

func (c *contest) holdMany(ctx context.Context, r rival) (map[string]float64, error) {
	const hands = 32
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	o, err := r.open(ctx, hands)
	if err != nil {
		return nil, err
	}
	defer o.close()
	checks := make([]func() error, c.b.kept)
	err = together(hands, func(w int) (err error) {
		for i := w; i < len(checks); i += hands {
			if checks[i], err = o.hold(ctx, fmt.Sprintf("held-%d", i)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	runtime.GC()
	from := c.read(o)
	select {
	case <-time.After(c.b.keepFor):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	got := c.since(from, o)
	for i, check := range checks {
		if err := check(); err != nil {
			return nil, fmt.Errorf("lease %d of %d was lost: %w", i, len(checks), err)
		}
	}
	s := got.elapsed().Seconds()
	values := map[string]float64{
		"commands": float64(got.commands) / s, "trips": float64(got.trips) / s,
		"client": got.client.Seconds() / s,
	}
	if got.server > 0 {
		values["server"] = got.server.Seconds() / s
	}
	return values, nil
}
