package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/croft-dev/croft/internal/test/testenv"
)

//go:embed python.py
var pythonProgram []byte

// locker takes a lock n times, and returns how long each took.
type locker struct {
	name string
	n    int
	take func(ctx context.Context, n int) ([]time.Duration, error)
}

// benchPython measures the time from lease() to granted in Python, beside
// redis-py's Lock and beside croft acquire, on the same Redis.
func benchPython(ctx context.Context, b *bench) error {
	engine, err := b.redis()
	if err != nil {
		return err
	}
	const python = "/usr/bin/python3" // to which Debian's packages belong
	err = b.try(func() {
		testenv.Package(b.tb, "python3-redis", func() error { return exec.Command(python, "-c", "import redis").Run() })
	})
	if err != nil {
		return err
	}
	program, root, err := b.buildCroft(ctx)
	if err != nil {
		return err
	}
	folder, err := b.folder("python")
	if err != nil {
		return err
	}
	script := filepath.Join(folder, "python.py")
	if err := os.WriteFile(script, pythonProgram, 0o600); err != nil {
		return err
	}
	store := "redis://" + engine.addr
	server, err := startServer(ctx, program, store)
	if err != nil {
		return err
	}
	defer server.stop()
	env := append(os.Environ(), "CROFT_BIN="+program, "PYTHONPATH="+filepath.Join(root, "clients", "python"),
		"BENCH_REDIS="+engine.addr)
	byPython := func(library, store string) func(context.Context, int) ([]time.Duration, error) {
		return func(ctx context.Context, n int) ([]time.Duration, error) {
			c := exec.CommandContext(ctx, python, script, library, fmt.Sprint(n))
			c.Env, c.Stderr = append(slices.Clip(env), "CROFT_STORE="+store), os.Stderr
			out, err := c.Output()
			if err != nil {
				return nil, err
			}
			var seconds []float64
			if err := json.Unmarshal(out, &seconds); err != nil || len(seconds) != n {
				return nil, fmt.Errorf("%d times were measured, not %d: %w", len(seconds), n, err)
			}
			took := make([]time.Duration, n)
			for i, s := range seconds {
				took[i] = time.Duration(s * float64(time.Second))
			}
			return took, nil
		}
	}
	byCommand := func(ctx context.Context, n int) ([]time.Duration, error) {
		var took []time.Duration
		for range n {
			start := time.Now()
			lease, err := exec.CommandContext(ctx, program, "--store", store, "acquire", "bench/command").Output()
			if err != nil {
				return nil, err
			}
			took = append(took, time.Since(start))
			give := exec.CommandContext(ctx, program, "--store", store, "release", "-")
			give.Stdin = strings.NewReader(string(lease))
			if out, err := give.CombinedOutput(); err != nil {
				return nil, fmt.Errorf("%w: %s", err, out)
			}
		}
		return took, nil
	}
	url := server.url + "/"
	return b.lockers(
		ctx,
		locker{"redis-py: Lock", 100, byPython("redis-py", "")},
		locker{"croft.lease", 100, byPython("croft", store)},
		locker{"croft.lease, at a server", 100, byPython("croft", url)},
		locker{"croft.lease, the first of a program", 5, byPython("first", store)},
		locker{"croft.lease, the first of a program, at a server", 5, byPython("first", url)},
		locker{"croft acquire", 5, byCommand},
	)
}

// lockers lets them alternate, and reports the medians of all times.
func (b *bench) lockers(ctx context.Context, all ...locker) error {
	took := make([][]time.Duration, len(all))
	for round := range b.rounds {
		for i := range all {
			if round%2 == 1 {
				i = len(all) - 1 - i
			}
			more, err := all[i].take(ctx, b.count(all[i].n))
			if err != nil {
				return fmt.Errorf("%s: %w", all[i].name, err)
			}
			took[i] = append(took[i], more...)
		}
	}
	t := b.newTable()
	t.columns = []column{{"median", "median", asTime}, {"worst", "worst", asTime}, {"ratio", "to the first", asRatio}}
	for i, l := range all {
		t.Rows = append(t.Rows, row{l.name, map[string]float64{
			"median": float64(median(took[i])), "worst": float64(slices.Max(took[i])),
		}})
	}
	t.rate("median", "ratio")
	t.Notes = append(t.Notes, "redis-py keeps no lock alive, and gives out no token",
		"croft.lease asks twice: a grant that had to wait gives no authority by itself")
	b.add(t)
	return nil
}
