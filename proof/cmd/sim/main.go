// Command sim runs the deterministic simulator of package proof/sim. It runs
// many seeds of every profile, or one seed with its timeline, or the broken
// variants that the simulator must find.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/croft-dev/croft/proof/sim"
)

const usage = `sim tries to break Croft's laws in simulated worlds, each a function of its seed.

  sim                            3,000 seeds, spread over all profiles
  sim --seeds 20000              so many
  sim --profile s3,redis         only these profiles
  sim --profile s3 --seed 20     one seed, with its timeline
  sim --mutants                  every broken variant, and the law or the test by which it is found
  sim --mutants --mutant NAME    one of them
  sim --mutant NAME --seed 3     one seed of it, with its timeline

A seed that breaks a law is shrunk and told as a timeline. The exit status is 1
if a law was broken, a profile has not shown all that it must, or a broken
variant was not found; 2 if the command line is wrong.

`

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

type settings struct {
	profiles []string
	seeds    int
	first    uint64
	seed     uint64
	single   bool
	given    *sim.Case
	workers  int
	json     bool
	mutants  bool
	mutant   string
	broken   *sim.Mutant // named mutant
	cover    bool
	progress bool
	ops      int
}

func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	s, err := parse(args, errOut)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		say(errOut, "sim: %v\n", err)
		return 2
	case s.mutants:
		return mutants(ctx, s, out, errOut)
	case s.mutant != "" && !s.broken.Built():
		return patched(ctx, s.broken, args, out, errOut)
	case s.single:
		return single(s, out)
	}
	return soak(s, out, errOut)
}

func parse(args []string, errOut io.Writer) (*settings, error) {
	s := &settings{}
	f := flag.NewFlagSet("sim", flag.ContinueOnError)
	f.SetOutput(errOut)
	f.Usage = func() { say(errOut, "%s", usage); f.PrintDefaults() }
	profiles := f.String(
		"profile", "",
		"profiles to run, separated by commas (default all: "+strings.Join(sim.ProfileNames(), ", ")+")",
	)
	f.IntVar(
		&s.seeds, "seeds", 3000,
		"how many seeds, spread evenly over the profiles; with --mutants, how many each variant gets at most",
	)
	f.Uint64Var(&s.first, "first", 1, "the first seed of each profile")
	f.Func("seed", "run this seed alone and print its timeline", func(text string) error {
		s.single = true
		_, err := fmt.Sscan(text, &s.seed)
		return err
	})
	f.Func("case", "run this case, as it was printed for a broken seed", func(text string) error {
		s.single, s.given = true, &sim.Case{}
		return json.Unmarshal([]byte(text), s.given)
	})
	f.IntVar(&s.workers, "workers", runtime.GOMAXPROCS(0), "how many seeds at a time")
	f.IntVar(&s.ops, "ops", 0, "requests before the faults stop (default 500)")
	f.BoolVar(&s.json, "json", false, "print one JSON object per profile, seed or mutant")
	f.BoolVar(&s.mutants, "mutants", false, "run every broken variant until it is found")
	f.StringVar(&s.mutant, "mutant", "", "the broken variant of a single seed, or of --mutants")
	f.BoolVar(&s.cover, "coverage", false, "print how often each fault, transition and refusal was seen")
	f.BoolVar(&s.progress, "progress", true, "tell on stderr, now and then, how far it is")
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil, err
		}
		return nil, fmt.Errorf("%w; see sim -h", err)
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("there is no argument %q; see sim -h", f.Arg(0))
	}
	s.profiles = sim.ProfileNames()
	if *profiles != "" {
		s.profiles = strings.Split(*profiles, ",")
	}
	err := s.check(*profiles != "")
	return s, err
}

func (s *settings) check(chosen bool) error {
	if s.given != nil {
		s.profiles, s.mutant, chosen = []string{s.given.Profile}, s.given.Mutant, true
	}
	for _, p := range s.profiles {
		if _, err := sim.FindProfile(p); err != nil {
			return err
		}
	}
	if s.seeds < 1 || s.workers < 1 || s.ops < 0 {
		return errors.New("seeds and workers must be 1 or more, ops not negative")
	}
	if s.mutant != "" {
		m, err := sim.FindMutant(s.mutant)
		s.broken = m
		switch {
		case err != nil:
			return err
		case s.mutants:
			return nil
		case m.Test != "":
			return fmt.Errorf("%s breaks no law; it is found by the test %s: add --mutants", m.Name, m.Test)
		case !s.single:
			return errors.New("a mutant needs a seed: add --seed, or use --mutants")
		case !chosen:
			s.profiles = []string{m.Profile}
		}
	}
	if s.single && len(s.profiles) != 1 {
		return errors.New("a single seed needs a single profile: add --profile")
	}
	return nil
}

// single runs one seed, and prints its timeline.
func single(s *settings, out io.Writer) int {
	c := sim.Case{Profile: s.profiles[0], Seed: s.seed, Mutant: s.mutant, Ops: s.ops}
	if s.given != nil {
		c = *s.given
	}
	r := sim.Run(c, true)
	if s.json {
		print1(out, r)
	} else {
		for _, line := range r.Timeline {
			say(out, "%s\n", line)
		}
		say(out, "%d requests, %d faults, %s simulated\n", r.Ops, len(r.Fired), r.Lasted.Round(time.Millisecond))
	}
	if r.Broken == nil {
		return 0
	}
	if !s.json && s.given == nil {
		tell(out, sim.Shrink(r.Case, shrinkRuns))
	}
	return 1
}

// shrinkRuns limits the search for a smaller case to some seconds.
const shrinkRuns = 1500

// tell prints a shrunk case that breaks a law.
func tell(out io.Writer, r *sim.Result) {
	say(out, "\nshrunk to %d clients, %d keys and %d faults:\n", r.Case.Clients, r.Case.Keys, len(r.Fired))
	for _, line := range r.Timeline {
		say(out, "  %s\n", line)
	}
	for _, f := range r.Fired {
		say(out, "  needed: %s\n", f)
	}
	text, _ := json.Marshal(r.Case) // a case is plain data
	say(out, "%v\nrun it again: go run ./proof/cmd/sim --case '%s'\n", r.Broken, text)
}

// soak runs many seeds of each profile.
func soak(s *settings, out, errOut io.Writer) int {
	each := (s.seeds + len(s.profiles) - 1) / len(s.profiles)
	code, done, began, told := 0, 0, time.Now(), time.Now()
	var ops int64
	for _, name := range s.profiles {
		soaked := sim.Soaking{
			Profile: name, First: s.first, Seeds: each, Ops: s.ops,
			Workers: s.workers, Tick: func(n int) {
				if s.progress && time.Since(told) >= 15*time.Second {
					told = time.Now()
					say(
						errOut, "%s: %d of %d seeds; %d of %d in all, %s\n", name, n, each, done+n,
						each*len(s.profiles), time.Since(began).Round(time.Second),
					)
				}
			},
		}.Run()
		done += soaked.Seeds
		ops += soaked.Ops
		if len(soaked.Broken) > 0 || len(soaked.Missing) > 0 {
			code = 1
		}
		if s.json {
			print1(out, soaked)
			continue
		}
		say(
			out, "%-9s %6d seeds, %9d requests, at least %4d each, %10d events, %s\n", name,
			soaked.Seeds, soaked.Ops, soaked.LeastOps, soaked.Events,
			soaked.Took.Round(time.Millisecond),
		)
		if s.cover {
			say(out, "%s", soaked.Coverage)
		}
		for _, m := range soaked.Missing {
			say(out, "  never seen: %s %s\n", m.Kind, m.Name)
		}
		for i, r := range soaked.Broken {
			say(out, "  seed %d: %v\n", r.Case.Seed, r.Broken)
			if i == 0 {
				tell(out, sim.Shrink(r.Case, shrinkRuns))
			}
		}
	}
	if !s.json {
		say(out, "%d seeds, %d requests, %s\n", done, ops, time.Since(began).Round(time.Millisecond))
	}
	return code
}

func print1(out io.Writer, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		say(out, "%v\n", err)
		return
	}
	say(out, "%s\n", text)
}

// say prints. Errors of writing are ignored.
func say(out io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(out, format, args...) }
