package chaos

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/term"
)

// The exit statuses of the command.
const (
	exitLawful = 0
	exitBroken = 1 // a law was broken, or the control lost nothing
	exitUsage  = 2
	exitFailed = 3 // a run could not be carried through
)

// command holds the flags and the state of the program.
type command struct {
	out, err   io.Writer
	backends   []Backend
	span       time.Duration
	control    time.Duration
	seed       uint64
	clients    int
	operators  int
	keys       int
	atOnce     int
	folder     string
	json       bool
	terminal   bool // progress goes to a terminal
	told       time.Time
	mu         sync.Mutex
	shown      map[string]string // the last progress of each run in flight, by backend
	broken     bool
	incomplete bool
}

// Main runs the program and returns the exit status.
func Main(args []string, out, errs io.Writer) int {
	c := &command{out: out, err: errs, shown: map[string]string{}}
	if f, ok := errs.(*os.File); ok {
		c.terminal = term.IsTerminal(int(f.Fd()))
	}
	if status, done := c.parse(args); done {
		return status
	}
	// The servers come from the tests' environment, which asks for -test.short.
	if !flag.Parsed() {
		testing.Init()
		_ = flag.CommandLine.Parse(nil)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	return c.run(ctx)
}

func (c *command) parse(args []string) (status int, done bool) {
	var names []string
	for _, b := range Backends {
		names = append(names, b.Name)
	}
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.SetOutput(c.err)
	flags.Usage = func() {
		c.say("Runs clients on real servers under faults, and holds what they saw against the " +
			"laws.\n\nUsage: go run ./proof/chaos/cmd [flags]\n\n")
		flags.PrintDefaults()
		c.say("\nExit status: 0 all laws held and every control lost updates, 1 not so, 2 usage, 3 a run " +
			"could not be carried through.\n")
	}
	backends := flags.String("backend", "all", "which, separated by commas: "+strings.Join(names, ", "))
	flags.DurationVar(&c.span, "for", time.Minute, "how long faults go on, on each backend")
	flags.DurationVar(
		&c.control, "control", 2*time.Minute,
		"how long at most the run without guards may take to lose an update; 0 leaves it out",
	)
	flags.Uint64Var(&c.seed, "seed", 0, "decides which faults come when; 0 takes the time")
	flags.IntVar(&c.clients, "clients", 16, "client processes")
	flags.IntVar(&c.operators, "operators", 2, "processes that take keys from clients by hand")
	flags.IntVar(&c.keys, "keys", 10, "keys")
	flags.IntVar(&c.atOnce, "at-once", 2, "backends at the same time")
	flags.StringVar(
		&c.folder, "keep", "",
		"keep histories and timelines in this folder (default: a temporary one, kept if a law was broken)",
	)
	flags.BoolVar(&c.json, "json", false, "print one JSON object for each run instead of the table")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return exitLawful, true
		}
		return exitUsage, true
	}
	bad := func(format string, args ...any) (int, bool) {
		c.say("chaos: "+format+"; see -h\n", args...)
		return exitUsage, true
	}
	if flags.NArg() > 0 {
		return bad("%q is no flag", flags.Arg(0))
	}
	if c.span <= 0 || c.control < 0 || c.clients < 1 || c.operators < 0 || c.keys < 1 || c.atOnce < 1 {
		return bad("--for, --clients, --keys and --at-once must be more than nothing, --control and " +
			"--operators not less")
	}
	for name := range strings.SplitSeq(*backends, ",") {
		if b, ok := Find(name); ok {
			c.backends = append(c.backends, b)
		} else if name == "all" {
			c.backends = slices.Clone(Backends)
		} else {
			return bad("there is no backend %q; known are %s", name, strings.Join(names, ", "))
		}
	}
	if c.seed == 0 {
		c.seed = uint64(time.Now().UnixNano())
	}
	return 0, false
}

// pairOf has the results of one backend, with and without guards.
type pairOf struct {
	backend       Backend
	guarded, bare *Report
	err           error
}

func (c *command) run(ctx context.Context) int {
	if c.folder == "" {
		folder, err := os.MkdirTemp("", "croft-chaos-")
		if err != nil {
			c.say("chaos: %v\n", err)
			return exitFailed
		}
		c.folder = folder
		defer func() {
			if !c.broken && !c.incomplete {
				_ = os.RemoveAll(folder)
			}
		}()
	}
	results := make([]pairOf, len(c.backends))
	slots := make(chan struct{}, c.atOnce)
	var all sync.WaitGroup
	for i, b := range c.backends {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			results[i] = c.both(ctx, b)
			c.conclude(results[i])
		})
	}
	all.Wait()
	if !c.json {
		c.table(results)
	}
	switch {
	case c.incomplete:
		return exitFailed
	case c.broken:
		return exitBroken
	}
	return exitLawful
}

// both runs a backend without and with guards.
func (c *command) both(ctx context.Context, b Backend) pairOf {
	p := pairOf{backend: b}
	o := Options{
		Backend: b, Clients: c.clients, Operators: cmp.Or(c.operators, -1), Keys: c.keys,
		Seed: c.seed, Progress: c.progress,
	}
	defer c.forget(b.Name)
	if c.control > 0 {
		o.Bare, o.For, o.Folder = true, c.control, filepath.Join(c.folder, b.Name+"-bare")
		if p.bare, p.err = Run(ctx, o); p.err != nil {
			return p
		}
	}
	o.Bare, o.For, o.Folder = false, c.span, filepath.Join(c.folder, b.Name)
	p.guarded, p.err = Run(ctx, o)
	return p
}

// conclude reports violations as soon as a backend's runs are over.
func (c *command) conclude(p pairOf) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clear()
	if p.err != nil {
		c.incomplete = true
		c.say("%s: %v\n\thistories: %s\n", p.backend.Name, p.err, c.folder)
	}
	for _, r := range []*Report{p.bare, p.guarded} {
		if r == nil {
			continue
		}
		if c.json {
			_ = json.NewEncoder(c.out).Encode(r)
		}
		for _, v := range r.Violations {
			c.broken = true
			c.say("%s: BROKEN: %s\n", r.Backend, v)
		}
		if r.Timeline != "" {
			c.say("%s: see %s; again with --backend %s --seed %d\n", r.Backend, r.Timeline, r.Backend, r.Seed)
		}
		if !r.Guarded && r.Lost == 0 {
			c.broken = true
			c.say(
				"%s: the control lost no update in %s: the faults are too mild to show anything\n",
				r.Backend, r.Took.Round(time.Second),
			)
		}
	}
}
