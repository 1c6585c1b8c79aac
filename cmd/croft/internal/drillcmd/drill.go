// Package drillcmd is croft drill: it plays what goes wrong in practice, and
// shows what happened. Package drill in internal has the scenes.
package drillcmd

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/internal/drill"
	"github.com/croft-dev/croft/store"
)

// app has the commands as methods.
type app struct{ *cli.App }

// Command is croft drill.
func Command(a *cli.App) *cobra.Command { return (&app{a}).drillCommand() }

// WorkerCommand is the hidden command of the drill's worker processes.
func WorkerCommand(a *cli.App) *cobra.Command { return (&app{a}).drillWorkerCommand() }

func (a *app) drillCommand() *cobra.Command {
	var o drill.Options
	var staged bool
	var picture string
	c := &cobra.Command{
		Use:     "drill",
		GroupID: cli.GroupTool,
		Short:   "Prove on your own store that stale owners are refused",
		Long: `Play what goes wrong in practice, on the real store, with real processes, real
pauses and real TTLs. Then show what happened. These are the scenes:

  pause      a worker is stopped in the middle of a write. Its lease ends and
             another worker follows. It wakes up, and tries everything.
  cutoff     a worker cannot reach the store any more. It must give up its
             lease before another worker gets it.
  operator   an operator takes over the key while a worker works
  messages   a reply is lost; copies of requests arrive late
  crash      a worker is killed in the middle of a write
  rush       two dozen processes ask for one expired lease at the same moment

At the end the drill shows who held each key when, as the store remembers it.

With --svg it also draws the scene pause: who held the key when, what the file
held, and what became of every write. The picture is one file for light and dark
pages. With --svg - only the picture is printed.

With --staged it plays one story instead, in four stages. After each stage it
shows what an engineer on call would have seen: which metrics moved, which alert
is on its way, what croft show and croft history say.

  expiry         a worker is stopped for longer than its lease lasts, and
                 another worker is granted the key
  stale-release  the first worker wakes up and releases the key: the store
                 refuses, and changes nothing
  renew-failure  the new owner cannot reach the store any more: its failures
                 are counted, and its lease ends before the deadline
  stale-write    it writes all the same, over HTTP, to a service behind
                 croft's proxy: the proxy answers 409, and the service never
                 sees the write

With --unguarded the workers write without the fence, as programs do that trust
their lease. Then the stale worker's old result replaces the new one.

The drill uses its own keys, croft-drill/…, and files in a temporary folder. It
removes the files. The store forgets the keys like all unused keys. Until then
"croft ls croft-drill/" shows them; other listings leave them out.

Exit codes: 0 if everything stale was refused; 1 if anything stale got through
(so always with --unguarded), or if something could not be tried; 14 if the
store could not be reached.`,
		Example: `  croft drill --store /shared/croft
  croft drill --unguarded                    # the same without the fence
  croft drill --dir /shared/out --ttl 10s    # guarded files on your own disk, and time for a slow store
  croft drill --svg pause.svg                # the scene pause as a picture
  croft drill --staged                       # what you would see in metrics and alerts
  croft drill --json | jq 'select(.ok == false)'`,
		Args: cli.Takes(),
		RunE: func(c *cobra.Command, _ []string) error {
			if !c.Flags().Changed("svg") {
				return a.drill(c.Context(), o, staged, nil)
			}
			if staged {
				return cli.Invalid("--svg: it draws the scene pause, which a staged drill does not play; " +
					"leave out --staged")
			}
			file, err := newPictureFile(picture, a.JSON)
			if err != nil {
				return err
			}
			defer file.remove()
			return a.drill(c.Context(), o, staged, file)
		},
	}
	flags := c.Flags()
	o.TTL = 2 * time.Second
	flags.Var(&cli.Duration{
		Value: &o.TTL, Least: 500 * time.Millisecond, Most: 10 * time.Minute,
		Examples: "2s, 10s or 1m",
	}, "ttl", "TTL of the leases; the drill takes a bit more than twice as long")
	flags.StringVar(&o.Dir, "dir", "",
		"make the folder of guarded files in this `folder` (default the system's folder for temporary files)")
	flags.BoolVar(&o.Unguarded, "unguarded", false, "write without the fence, and see what happens")
	flags.BoolVar(&staged, "staged", false,
		"play one story in four stages, and show after each what metrics, alerts and the store say")
	flags.BoolVar(&o.Keep, "keep", false, "leave the files and the keys as they are at the end")
	flags.StringVar(&picture, "svg", "", "draw the scene pause as a timeline into this `file`, - for standard output")
	_ = c.MarkFlagDirname("dir")
	return c
}

// drillWorkerCommand is a worker process of the drill. It takes orders on
// standard input.
func (a *app) drillWorkerCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "drill-worker",
		Hidden: true, // not for people
		Short:  "Be a worker of the drill",
		Args:   cli.Takes(),
		RunE: func(c *cobra.Command, _ []string) error {
			return drill.Serve(c.Context(), a.Stdin, a.Stdout, drillMeter())
		},
	}
}

// drill plays the scenes and shows what happened. If there is a file, it also
// draws a picture.
func (a *app) drill(ctx context.Context, o drill.Options, staged bool, picture *pictureFile) error {
	if drill.Supported != nil {
		return drill.Supported
	}
	ctx, stop := cli.Interruptible(ctx)
	defer stop()
	name, _, err := a.StoreName()
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("the drill runs this program once more for every worker, and cannot find it: %w", err)
	}
	st, err := a.Open(ctx)
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
		play, show, showJSON, widest, takes = drill.RunStaged, a.printStaged, a.printStagedJSON, 13,
			5*o.TTL/2+time.Second
	}
	if !a.JSON {
		o.Progress = a.drillProgress(widest)
		without := ""
		if o.Unguarded {
			without = ", without the fence"
		}
		fmt.Fprintf(a.Stderr, "croft: drill on %s%s: leases of %s, about %s in all\n", cli.Word(store.Redact(name)),
			without, o.TTL, cli.Short(takes))
	}
	report, err := play(ctx, o)
	if err != nil {
		return err
	}
	switch {
	case picture.onStdout():
	case a.JSON:
		showJSON(report, store.Redact(name), o.Keep)
	default:
		show(report, o.Keep)
	}
	if picture != nil {
		if err := a.savePicture(picture, report); err != nil {
			return err
		}
	}
	switch {
	case report.Good():
		return nil
	case report.Unanswered():
		return cli.ExitError(cli.ExitUnknown)
	}
	return cli.ExitError(cli.ExitFailed)
}

// drillProgress prints each step on standard error with the time since the
// start. widest is the length of the longest scene name.
func (a *app) drillProgress(widest int) func(scene, text string) {
	var mu sync.Mutex
	began := time.Now()
	return func(scene, text string) {
		mu.Lock()
		defer mu.Unlock()
		if scene != "" {
			text = fmt.Sprintf("%-*s  %s", widest, scene, text)
		}
		fmt.Fprintf(a.Stderr, "croft: %4.1fs  %s\n", time.Since(began).Seconds(), text)
	}
}
