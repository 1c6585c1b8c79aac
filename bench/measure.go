package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"
)

// bench is one run of the program.
type bench struct {
	out    io.Writer
	dir    string
	rounds int
	leases int // for the held workload of the directory store
	made   int

	// For workloads on servers.
	span    time.Duration // length of one turn of a contender
	passes  int           // hand-offs in a round
	passFor time.Duration // longest round of hand-offs
	kept    int           // leases to hold
	keepFor time.Duration // how long to hold them
	// patience is how much longer than its span a peer's turn may take. A peer
	// that waits that long for a free key would wait for ever.
	patience time.Duration
	// divide makes all fixed counts that many times smaller; default 1. Tests
	// set it: they check that a workload runs, not how fast.
	divide int

	tb             testing.TB // servers are started under it
	redisEngine    *engine
	postgresEngine *engine
	etcdEngine     *engine

	load   string // load average before the run
	report report
	title  workload // the current workload
}

// contender is one way to do a thing. do performs n operations.
type contender struct {
	name string
	n    int
	do   func(ctx context.Context, n int) error
}

// result has a contender's medians over the rounds, per operation.
type result struct {
	name      string
	wall, cpu time.Duration
}

// count returns a fixed count of operations or rows, divided by divide.
func (b *bench) count(n int) int { return max(n/max(b.divide, 1), 2) }

// folder makes a fresh folder on the measured disk.
func (b *bench) folder(name string) (string, error) {
	b.made++
	dir := filepath.Join(b.dir, fmt.Sprintf("%s-%d", name, b.made))
	return dir, os.MkdirAll(dir, 0o700)
}

// compare lets the contenders alternate for all rounds, after a warm-up round,
// and reports them as ratios to the first. conclude adds aims and notes to the
// table.
func (b *bench) compare(ctx context.Context, conclude func(*table, []result), contenders ...contender) error {
	walls, cpus := make([][]time.Duration, len(contenders)), make([][]time.Duration, len(contenders))
	for round := range b.rounds + 1 {
		for i := range contenders {
			// Go backwards in every other round, so that no contender always
			// runs after the same one.
			if round%2 == 1 {
				i = len(contenders) - 1 - i
			}
			c := contenders[i]
			n := b.count(c.n)
			cpu, start := cpuTime(), time.Now()
			if err := c.do(ctx, n); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			if round > 0 {
				walls[i] = append(walls[i], time.Since(start)/time.Duration(n))
				cpus[i] = append(cpus[i], (cpuTime()-cpu)/time.Duration(n))
			}
		}
	}
	results := make([]result, len(contenders))
	t := b.newTable()
	t.columns = []column{{"wall", "each", asTime}, {"cpu", "CPU each", asTime}, {"ratio", "to the first", asRatio}}
	for i, c := range contenders {
		results[i] = result{name: c.name, wall: median(walls[i]), cpu: median(cpus[i])}
		t.Rows = append(t.Rows, row{c.name, map[string]float64{
			"wall": float64(results[i].wall), "cpu": float64(results[i].cpu),
			"ratio": ratio(results[i], results[0]),
		}})
	}
	conclude(t, results)
	b.add(t)
	return nil
}

// printf prints. Errors of writing are ignored.
func (b *bench) printf(format string, args ...any) { _, _ = fmt.Fprintf(b.out, format, args...) }

func ratio(a, to result) float64 { return float64(a.wall) / float64(max(to.wall, 1)) }

func median(d []time.Duration) time.Duration {
	d = slices.Clone(d)
	slices.Sort(d)
	return d[len(d)/2]
}

// short formats a duration with about three digits.
func short(d time.Duration) string {
	switch {
	case d >= time.Second:
		return fmt.Sprintf("%.2fs", d.Seconds())
	case d >= time.Millisecond:
		return fmt.Sprintf("%.2fms", float64(d)/1e6)
	default:
		return fmt.Sprintf("%.1fµs", float64(d)/1e3)
	}
}

// cpuTime returns the CPU time that this process has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
