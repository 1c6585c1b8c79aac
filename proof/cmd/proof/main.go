// Command proof runs everything that tries to break Croft, one after the other, and writes what was run into docs/proof.md: the simulator, its broken variants, chaos on real servers, power cuts, and the model.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"time"
)

const usage = `proof runs everything that tries to break Croft, and writes what was run into a page.

  go run ./proof/cmd/proof                 everything: about 20 minutes on two cores
  go run ./proof/cmd/proof -seeds 100000   more of the simulator

The exit status is 1 if a law was broken, a broken variant was not found, or something could not be run. The page is written then, too.

`

func main() {
	p := &program{run: &run{At: time.Now().UTC().Truncate(time.Second)}}
	flag.Usage = func() { fmt.Fprint(os.Stderr, usage); flag.PrintDefaults() }
	flag.IntVar(&p.seeds, "seeds", 22000, "seeds of the simulator")
	flag.DurationVar(&p.chaos, "for", time.Minute, "how long faults go on, on each backend")
	flag.DurationVar(&p.control, "control", 2*time.Minute, "how long the run without guards may take to lose an update")
	flag.StringVar(&p.page, "page", "docs/proof.md", "the page to write the figures into; empty: none")
	flag.StringVar(&p.book, "book", "docs/proof.json", "the file that keeps the figures of all runs")
	flag.Parse()
	if flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := p.all(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "proof:", err)
		os.Exit(1)
	}
}

// program is one call of the command.
type program struct {
	seeds          int
	chaos, control time.Duration
	page, book     string
	run            *run
}

// all runs every part, also after one has failed, and writes the figures.
func (p *program) all(ctx context.Context) error {
	start := time.Now()
	var failed []error
	for _, part := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"the simulator", p.simulate},
		{"broken variants", p.mutate},
		{"chaos on real servers", p.unrest},
		{"power cuts", func(ctx context.Context) error { return test(ctx, &p.run.Cuts, "./proof/crash", "-all") }},
		{"the model", func(ctx context.Context) error { return test(ctx, &p.run.Model, "./proof/model") }},
	} {
		fmt.Printf("== %s\n", part.name)
		began := time.Now()
		err := part.do(ctx)
		if ctx.Err() != nil {
			return ctx.Err() // what was interrupted is no figure
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", part.name, err))
			p.run.Failed = append(p.run.Failed, part.name)
		}
		fmt.Printf("   %s, after %s\n", word(err == nil), time.Since(began).Round(time.Second))
	}
	p.run.Seconds = time.Since(start).Seconds()
	return errors.Join(append(failed, p.write())...)
}

func word(good bool) string {
	if good {
		return "all laws held"
	}
	return "FAILED"
}

// lines runs a program of this repository and hands each line of JSON that it prints to read.
func lines(ctx context.Context, read func(line []byte) error, args ...string) error {
	c := exec.CommandContext(ctx, "go", append([]string{"run"}, args...)...)
	c.Stderr = os.Stderr
	var out bytes.Buffer
	c.Stdout = &out
	failed := c.Run()
	for decoder := json.NewDecoder(&out); ; {
		var line json.RawMessage
		if err := decoder.Decode(&line); errors.Is(err, io.EOF) {
			return failed
		} else if err != nil {
			return errors.Join(failed, err)
		}
		if err := read(line); err != nil {
			return errors.Join(failed, err)
		}
	}
}

func (p *program) simulate(ctx context.Context) error {
	return lines(ctx, func(line []byte) error {
		var got struct {
			Seeds, Requests, Faults int64
			Seconds                 float64
		}
		if err := json.Unmarshal(line, &got); err != nil {
			return err
		}
		p.run.Seeds += got.Seeds
		p.run.Requests += got.Requests
		p.run.Faults += got.Faults
		return nil
	}, "./proof/cmd/sim", "--json", fmt.Sprintf("--seeds=%d", p.seeds))
}

func (p *program) mutate(ctx context.Context) error {
	return lines(ctx, func(line []byte) error {
		var got struct {
			Mutant, Says, Law string
			Killed            bool
			Seeds             int
		}
		if err := json.Unmarshal(line, &got); err != nil {
			return err
		}
		p.run.Mutants++
		if !got.Killed {
			fmt.Printf("   NOT FOUND: %s: %s\n", got.Mutant, got.Says)
			return nil
		}
		p.run.Killed++
		fmt.Printf("   %-22s %-62s found by law %s, after %d seeds\n", got.Mutant, got.Says, got.Law, got.Seeds)
		return nil
	}, "./proof/cmd/sim", "--mutants", "--json", "--progress=false")
}

func (p *program) unrest(ctx context.Context) error {
	return lines(ctx, func(line []byte) error {
		var got storm
		if err := json.Unmarshal(line, &got); err != nil {
			return err
		}
		p.run.Chaos = append(p.run.Chaos, got)
		return nil
	}, "./proof/chaos/cmd", "-json", "-for", p.chaos.String(), "-control", p.control.String())
}

// test runs the tests of a package and remembers whether they passed.
func test(ctx context.Context, passed *bool, args ...string) error {
	c := exec.CommandContext(ctx, "go", append([]string{"test", "-count=1", "-timeout=60m"}, args...)...)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	err := c.Run()
	*passed = err == nil
	return err
}
