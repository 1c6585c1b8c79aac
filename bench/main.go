// Command bench measures Croft beside the bare operations it is made of.
//
// Machines are noisy, so contenders alternate within one run and what counts is the ratio of their medians, never a time alone.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
)

// workload is one comparison or report.
type workload struct {
	name, what string
	run        func(ctx context.Context, b *bench) error
}

// workloads lists them all. A new one is a file and a line here.
var workloads = []workload{
	{"dir", "directory store: acquire+release against its floor", benchDir},
	{"combine", "directory store: 64 goroutines on distinct keys against one", benchCombine},
	{"held", "ten thousand held leases in one client: the cost of a tick", benchHeld},
	{"run", "croft run against a bare exec", benchRun},
}

func main() {
	b := &bench{out: os.Stdout}
	pick := flag.String("run", "", "only the workloads whose name matches this expression")
	flag.IntVar(&b.rounds, "rounds", 7, "rounds of each contender")
	flag.StringVar(&b.dir, "dir", "", "folder to work in, on the disk to be measured (default: a temporary one)")
	flag.IntVar(&b.leases, "leases", 10000, "held leases in the held workload")
	list := flag.Bool("list", false, "list the workloads and end")
	flag.Parse()
	if *list {
		for _, w := range workloads {
			fmt.Printf("%-10s %s\n", w.name, w.what)
		}
		return
	}
	if err := b.all(*pick); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// all runs the workloads that match.
func (b *bench) all(pick string) error {
	match, err := regexp.Compile(pick)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	if b.rounds < 1 {
		return fmt.Errorf("-rounds %d: at least one is needed", b.rounds)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if b.dir == "" {
		dir, err := os.MkdirTemp("", "croft-bench-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		b.dir = dir
	}
	ran := 0
	for _, w := range workloads {
		if !match.MatchString(w.name) {
			continue
		}
		ran++
		b.printf("\n%s: %s\n", w.name, w.what)
		if err := w.run(ctx, b); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
	}
	if ran == 0 {
		return fmt.Errorf("no workload matches %q; -list shows them", pick)
	}
	return nil
}
