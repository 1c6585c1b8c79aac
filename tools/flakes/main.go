// Command flakes hunts flaky tests: tests that pass on an idle machine and fail
// now and then on a busy one. `make flakes` runs it.
//
// It builds every test binary once. Then it runs the binaries again and again,
// under load, until the time is up:
//
//   - Busy loops in processes of their own compete for the cores.
//   - A neighbour writes and syncs files in the temporary folder of the tests,
//     so that their own syncs have to wait for the disk.
//   - Every binary is stopped with SIGSTOP now and then, for up to a second.
//     Its children are not: a server goes on while its client stands still.
//   - Tests run in shuffled order, on one processor and on two in turn.
//
// Every failure is printed when it happens, and its whole output is kept in a
// file. A table at the end says which tests failed how often, and which command
// runs each of them alone.
//
// One goroutine hunts: it chooses the packages, counts the results and prints.
// Each running binary has a goroutine that starts, stops and reads it. It sends
// the finished run to the hunter over a channel. So the counts need no lock.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"
)

func main() {
	if isNeighbour() {
		return
	}
	// SIGPIPE is caught so that `make flakes | head` still cleans up.
	ctx, stop := signal.NotifyContext(
		context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE,
	)
	status := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// The exit statuses.
const (
	exitClean  = 0
	exitFailed = 1
	exitUsage  = 2
)

// options are what the user asked for.
type options struct {
	patterns []string
	run      string
	count    int
	each     int
	time     time.Duration // 0 is no limit
	jobs     int
	busy     int
	stop     time.Duration
	every    time.Duration
	disk     bool
	timeout  time.Duration
	build    []string
	keep     string
	json     string
}

const usage = `Usage: flakes [flags] [packages]

Hunts flaky tests: runs every test binary again and again on a machine that is
kept busy. Without packages it runs all those of the modules in go.work and,
where there is one, of the module in ./bench. A package never runs beside itself.

With make: make flakes FLAKESFLAGS='-for 30m ./fence ./store/...'
In there a $ is written $$.
`

// parse reads the command line.
func parse(args []string, stdout io.Writer) (*options, error) {
	o := &options{}
	var build string
	flags := flag.NewFlagSet("flakes", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	flags.DurationVar(&o.time, "for", 10*time.Minute,
		"how long to run tests, after building them; no limit if only -count is given")
	flags.StringVar(&o.run, "run", "", "run only the tests that match this `regexp`, as go test -run does")
	flags.IntVar(&o.count, "count", 0, "end when every package was run this `often`; 0 means only time ends the hunt")
	flags.IntVar(&o.each, "each", 1,
		"how `often` a binary runs each test before it ends; more than 1 is quicker for short tests")
	flags.IntVar(&o.jobs, "jobs", 2, "how many test binaries run at once")
	flags.IntVar(&o.busy, "busy", runtime.NumCPU(),
		"how many busy loops compete with the tests, each a process of its own")
	flags.DurationVar(&o.stop, "stop", time.Second,
		"the longest SIGSTOP of a test binary; each is of random length; 0 means none")
	flags.DurationVar(&o.every, "every", 5*time.Second,
		"the longest time between two such stops; each is random, a fifth of it at least")
	flags.BoolVar(&o.disk, "disk", true, "slow the disk: a process of low priority writes and syncs 4 MB files\n"+
		"beside the tests' temporary files all the time; their own syncs queue behind it;\n"+
		"without effect where temporary files are in memory (tmpfs)")
	flags.DurationVar(&o.timeout, "timeout", 20*time.Minute, "the timeout of each test binary")
	flags.StringVar(&build, "build", "", "`flags` for go test -c, as in '-race -tags x'")
	flags.StringVar(&o.keep, "keep", filepath.Join(".tools", "flakes"),
		"the `folder` that keeps the output of failed runs, in a folder for each hunt")
	flags.StringVar(&o.json, "json", "", "also write the result to this `file`, as JSON")
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		flags.SetOutput(stdout)
		say(stdout, "%s", usage)
		flags.PrintDefaults()
	}
	if err != nil {
		return nil, err
	}
	o.build, o.patterns = strings.Fields(build), flags.Args()
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if given["count"] && !given["for"] {
		o.time = 0
	}
	if err := o.check(given); err != nil {
		return nil, err
	}
	return o, nil
}

// check returns an error if the options make no sense.
func (o *options) check(given map[string]bool) error {
	if _, err := regexp.Compile(o.run); err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	for _, p := range o.patterns {
		if strings.HasPrefix(p, "-") {
			return fmt.Errorf("%s stands behind a package; flags come first", p)
		}
	}
	switch {
	case given["for"] && o.time <= 0:
		return errors.New("-for must be more than nothing, as in 30m")
	case o.jobs < 1 || o.each < 1:
		return errors.New("-jobs and -each must be at least 1")
	case o.count < 0, given["count"] && o.count == 0:
		return errors.New("-count must be at least 1")
	case o.busy < 0 || o.stop < 0:
		return errors.New("-busy and -stop must not be negative")
	case o.every <= 0 || o.timeout <= 0:
		return errors.New("-every and -timeout must be more than nothing")
	}
	return nil
}

// command runs the program: it hunts as args say, until ctx ends, and returns
// the exit status.
func command(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stdout)
	if errors.Is(err, flag.ErrHelp) {
		return exitClean
	}
	if err != nil {
		say(stderr, "flakes: %v\nflakes -h tells more", err)
		return exitUsage
	}
	h, err := newHunter(o, stdout)
	if err != nil {
		say(stderr, "flakes: %v", err)
		return exitFailed
	}
	defer func() {
		if err := h.cleanUp(); err != nil {
			say(stderr, "flakes: cleaning up: %v", err)
		}
	}()
	pkgs, err := list(ctx, h.top, o.patterns)
	if err != nil {
		say(stderr, "flakes: %v", err)
		return exitUsage
	}
	if err := h.build(ctx, pkgs); err != nil {
		say(stderr, "flakes: %v", err)
		return exitFailed
	}
	// Print the table in any case: an interrupted hunt has findings, too.
	err = h.hunt(ctx, pkgs)
	result := h.tally.result(h.folder)
	result.print(stdout)
	if o.json != "" {
		err = errors.Join(err, result.write(o.json))
	}
	switch {
	case err != nil:
		say(stderr, "flakes: %v", err)
		return exitFailed
	case result.Failures > 0:
		return exitFailed
	case result.nothing():
		say(stderr, "flakes: no test was run; does -run match one?")
		return exitUsage
	}
	return exitClean
}
