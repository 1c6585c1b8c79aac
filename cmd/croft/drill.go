package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft/internal/drill"
	"github.com/croft-dev/croft/store"
)

func (a *app) drillCommand() *cobra.Command {
	var o drill.Options
	var staged bool
	c := &cobra.Command{
		Use:     "drill",
		GroupID: groupTool,
		Short:   "Prove on your own store that stale owners are refused",
		Long: `Play what goes wrong in practice, on the real store, with real processes, real pauses and real TTLs, and show what came of it:

  pause      a worker is stopped in the middle of a write, outlives its lease, is replaced, wakes up, and tries everything
  cutoff     a worker cannot reach the store any more: its lease must end, in its own eyes, before another has it
  operator   the key is taken over by hand while a worker works
  messages   a reply is lost; copies of requests arrive late
  crash      a worker is killed in the middle of a write
  rush       two dozen processes ask for one expired lease at the same moment

Then it shows who held each key when, as the store remembers it.

With --staged it plays one story instead, stage by stage, and shows after each what somebody on call would have seen: which metric moved
from what to what, which alert is on its way, what croft show and croft history say.

  expiry         a worker is stopped for longer than its lease lasts; another is granted the key
  stale-release  it wakes up and releases: refused, nothing changed
  renew-failure  the new owner cannot reach the store any more: failures are counted, its lease ends before the deadline
  stale-write    it writes all the same, over HTTP, to a service behind croft's proxy: 409, the service never sees it

With --unguarded the workers write without the fence, as programs do that trust their lease: watch the sleeper's old result
replace the new one.

The drill uses keys of its own, croft-drill/…, which the store forgets as it forgets all that are no longer used, and files in a
temporary folder, which it removes.

Exit codes: 0 if everything was refused that should be, 1 if anything stale got through (so always with --unguarded) or
something could not be tried, 14 if the store could not be reached.`,
		Example: `  croft drill --store /shared/croft
  croft drill --unguarded                    # the same without the fence
  croft drill --dir /shared/out --ttl 10s    # guarded files where yours are, and more time for a slow store
  croft drill --staged                       # what does it look like from where you watch?
  croft drill --json | jq 'select(.ok == false)'`,
		Args: takes(),
		RunE: func(c *cobra.Command, _ []string) error {
			return a.drill(c.Context(), o, staged)
		},
	}
	flags := c.Flags()
	o.TTL = 2 * time.Second
	flags.Var(&duration{value: &o.TTL, least: 500 * time.Millisecond, most: 10 * time.Minute, examples: "2s, 10s or 1m"}, "ttl", "TTL of the leases; the drill takes a bit more than twice as long")
	flags.StringVar(&o.Dir, "dir", "", "put the guarded files into a folder in this one (default the system's folder for temporary files)")
	flags.BoolVar(&o.Unguarded, "unguarded", false, "write without the fence, and see what happens")
	flags.BoolVar(&staged, "staged", false, "play one story in four stages, and show after each what metrics, alerts and the store say")
	flags.BoolVar(&o.Keep, "keep", false, "leave the files and the keys as they are at the end")
	_ = c.MarkFlagDirname("dir")
	return c
}

// drillWorkerCommand is a worker of the drill, which starts it. It takes orders on standard input.
func (a *app) drillWorkerCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "drill-worker",
		Hidden: true, // not for people
		Short:  "Be a worker of the drill",
		Args:   takes(),
		RunE: func(c *cobra.Command, _ []string) error {
			return drill.Serve(c.Context(), a.stdin, a.stdout, drillMeter())
		},
	}
}

func (a *app) drill(ctx context.Context, o drill.Options, staged bool) error {
	if drill.Supported != nil {
		return drill.Supported
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	name, _, err := a.storeName()
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("the drill runs this program once more for every worker, and cannot find it: %w", err)
	}
	st, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer st.Close()

	o.Store, o.URL = st, name
	o.Worker = func() *exec.Cmd {
		return &exec.Cmd{Path: self, Args: []string{os.Args[0], "drill-worker"}}
	}
	play, show, showJSON, widest, takes := drill.Run, a.printDrill, a.printDrillJSON, 8, 2*o.TTL+time.Second
	if staged {
		o.Meter = drillMeter
		play, show, showJSON, widest, takes = drill.RunStaged, a.printStaged, a.printStagedJSON, 13, 5*o.TTL/2+time.Second
	}
	if !a.json {
		o.Progress = a.drillProgress(widest)
		without := ""
		if o.Unguarded {
			without = ", without the fence"
		}
		fmt.Fprintf(a.stderr, "croft: drill on %s%s: leases of %s, about %s in all\n", word(store.Redact(name)), without, o.TTL, short(takes))
	}
	report, err := play(ctx, o)
	if err != nil {
		return err
	}
	if a.json {
		showJSON(report, store.Redact(name), o.Keep)
	} else {
		show(report, o.Keep)
	}
	switch {
	case report.Good():
		return nil
	case report.Unanswered():
		return exitError(exitUnknown)
	}
	return exitError(exitFailed)
}

// drillProgress tells, on standard error, what happens while nothing seems to. widest is the length of a scene's name.
func (a *app) drillProgress(widest int) func(scene, text string) {
	var mu sync.Mutex
	began := time.Now()
	return func(scene, text string) {
		mu.Lock()
		defer mu.Unlock()
		if scene != "" {
			text = fmt.Sprintf("%-*s  %s", widest, scene, text)
		}
		fmt.Fprintf(a.stderr, "croft: %4.1fs  %s\n", time.Since(began).Seconds(), text)
	}
}
