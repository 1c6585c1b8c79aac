// Command proof runs everything that tries to break Croft: the simulator, the
// broken variants, fuzzing, chaos on real servers, power cuts, crowds, the
// model, takeovers between agents, and MCP peers. It writes the figures into
// docs/proof.md.
//
// The tests with broken variants run first and alone. Then chaos runs on a
// goroutine of its own, because it mostly waits, and the other parts run one
// after the other beside it. A mutex protects the failures and the results.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

const usage = `proof runs everything that tries to break Croft, and writes the figures into a page.

  go run ./proof/cmd/proof                    everything: less than 20 minutes on two cores
  go run ./proof/cmd/proof -seeds 200000      more of the simulator
  go run ./proof/cmd/proof -only sim,model    some of it; nothing is written

Parts: variants, fuzz, sim, chaos, cuts, crowds, model, takeovers, peers. The
exit status is 1 if a law was broken, a broken variant was not found, or
something could not be run. Then the output ends with the commands that show
each failure again. The page is written even then.

`

func main() {
	p := &program{run: &run{At: time.Now().UTC().Truncate(time.Second)}, progress: newProgress(os.Stderr)}
	only := ""
	flag.Usage = func() { fmt.Fprint(os.Stderr, usage); flag.PrintDefaults() }
	flag.IntVar(
		&p.seeds, "seeds", 44000,
		"seeds of the simulator; each run goes on where the last one that was written down ended",
	)
	flag.IntVar(&p.inputs, "inputs", 20000, "inputs tried at every fuzz target")
	flag.DurationVar(&p.chaos, "for", time.Minute, "how long faults go on, on each backend")
	flag.DurationVar(&p.control, "control", 2*time.Minute, "how long the run without guards may take to lose an update")
	flag.StringVar(&p.backends, "backend", "all", "the backends to try, separated by commas")
	flag.StringVar(&only, "only", "", "the parts to run, separated by commas; nothing is written then")
	flag.StringVar(&p.page, "page", "docs/proof.md", "the page to write the figures into; empty: none")
	flag.StringVar(&p.book, "book", "docs/proof.json", "the file that keeps the figures of all runs")
	flag.Parse()
	if only != "" {
		p.only, p.page = strings.Split(only, ","), ""
	}
	if err := p.check(); err != nil || flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "proof: %v; see -h\n", errors.Join(err, unknown(flag.Args())))
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

func unknown(args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("there is no argument %q", args[0])
}

// program is one call of the command. mu guards failures and the results in
// run.
type program struct {
	seeds, inputs  int
	chaos, control time.Duration
	backends       string
	only           []string
	page, book     string
	bin            string // folder of the built programs
	run            *run
	progress       *progress

	mu       sync.Mutex
	failures []failure
}

// failure is one thing that is wrong, and the command to see it again.
type failure struct{ part, what, again string }

// part is one part of the proof.
type part struct {
	name string
	do   func(*program, context.Context) error
}

var (
	// first runs alone: its tests of real servers wait long, but not for ever.
	first = part{"variants", (*program).variants}
	// storm mostly waits, and its timing matters. The parts in beside only
	// compute. They run at the same time, on the processors that it leaves
	// idle.
	storm  = part{"chaos", (*program).runChaos}
	beside = []part{
		{"fuzz", (*program).fuzz},
		{"sim", (*program).simulate},
		{"cuts", (*program).cuts},
		{"crowds", (*program).crowds},
		{"model", (*program).model},
		{"takeovers", (*program).takeovers},
		{"peers", (*program).peers},
	}
)

func (p *program) check() error {
	known := []string{first.name, storm.name}
	for _, part := range beside {
		known = append(known, part.name)
	}
	for _, name := range p.only {
		if !slices.Contains(known, name) {
			return fmt.Errorf("there is no part %q; there are %s", name, strings.Join(known, ", "))
		}
	}
	if p.seeds < 1 || p.inputs < 1 || p.chaos <= 0 || p.control <= 0 {
		return errors.New("-seeds, -inputs, -for and -control must be more than nothing")
	}
	return nil
}

// all runs every part, also after one has failed, and writes the figures.
func (p *program) all(ctx context.Context) error {
	earlier, err := p.read()
	if err != nil {
		return err
	}
	p.run.FirstSeed = 1
	for _, r := range earlier {
		p.run.FirstSeed = max(p.run.FirstSeed, r.NextSeed)
	}
	if p.bin, err = os.MkdirTemp("", "croft-proof-"); err != nil {
		return err
	}
	defer os.RemoveAll(p.bin)
	p.progress.say("proof", "building")
	for name, pkg := range map[string]string{
		"sim": "./proof/cmd/sim", "mutants": "./proof/cmd/mutants", "chaos": "./proof/chaos/cmd",
	} {
		if err := p.command(ctx, "proof", "go", "build", "-o", filepath.Join(p.bin, name), pkg).Run(); err != nil {
			return fmt.Errorf("%s cannot be built: %w", pkg, err)
		}
	}
	p.part(ctx, first)
	var chaos sync.WaitGroup
	chaos.Go(func() { p.part(ctx, storm) })
	for _, other := range beside {
		p.part(ctx, other)
	}
	chaos.Wait()
	if ctx.Err() != nil {
		return ctx.Err() // an interrupted run has no figures
	}
	p.run.Seconds = time.Since(p.progress.began).Seconds()
	for _, f := range p.failures {
		p.run.Failed = append(p.run.Failed, f.part+": "+f.what)
	}
	err = p.write(earlier)
	p.summary(os.Stdout)
	if len(p.failures) > 0 {
		err = errors.Join(err, fmt.Errorf("%d things are wrong", len(p.failures)))
	}
	return err
}

// part runs one part and records its outcome.
func (p *program) part(ctx context.Context, part part) {
	if len(p.only) > 0 && !slices.Contains(p.only, part.name) || ctx.Err() != nil {
		return
	}
	p.progress.say(part.name, "begins")
	began := time.Now()
	err := part.do(p, ctx)
	if ctx.Err() != nil {
		p.progress.say(part.name, "interrupted")
		return
	}
	if err == nil && p.run.nothing(part.name) {
		err = errors.New("nothing was run")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	known := slices.ContainsFunc(p.failures, func(f failure) bool { return f.part == part.name })
	if err != nil && !known {
		p.failures = append(p.failures, failure{part.name, err.Error(), p.again(part.name)})
		known = true
	}
	took := time.Since(began)
	p.run.Parts = append(p.run.Parts, outcome{Part: part.name, Seconds: took.Seconds(), Held: !known})
	p.progress.say(part.name, "%s, after %s", word(!known), took.Round(time.Second))
}

// fail records and prints something that is wrong.
func (p *program) fail(part, again, format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failures = append(p.failures, failure{part, fmt.Sprintf(format, args...), again})
	p.progress.say(part, "WRONG: "+format, args...)
}

func (p *program) again(part string) string { return "go run ./proof/cmd/proof -only " + part }

func word(good bool) string {
	if good {
		return "held"
	}
	return "FAILED"
}
