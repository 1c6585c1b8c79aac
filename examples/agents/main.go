// Agents tells a story with real processes. Three agents share one queue. One
// of them is frozen in the middle of its work and replaced. Then it wakes up
// with a half-finished result.
//
//	go run ./examples/agents
//
// It needs no server: leases, items and effects are in one SQLite file in a
// temporary folder. With -dir FOLDER they are kept in that folder, to look at
// afterwards.
//
// The file agents.go has the agents, newsroom.go has the webhook that hears of
// every report, and main.go tells the story. Reconciler and dispatcher run in a
// goroutine each, until the story is over.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"time"

	croft "github.com/croft-dev/croft"
	_ "github.com/croft-dev/croft/backend/sqlite" // sqlite:// for leases and ledger
	"github.com/croft-dev/croft/work"
	"github.com/croft-dev/croft/work/steward"
)

// ttl is how long the ledger keeps an item for an agent that it does not hear
// from. It is short for the story; a minute is usual.
const ttl = 2 * time.Second

const queue = "reports"

var regions = []string{"north", "south", "east", "west", "centre"}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "agents:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if len(args) == 3 && args[0] == "agent" { // this process is one of the agents
		return agent(ctx, args[1], args[2])
	}
	flags := flag.NewFlagSet("agents", flag.ExitOnError)
	folder := flags.String("dir", "", "keep everything in this folder")
	_ = flags.Parse(args) // exits by itself on an error
	return tell(ctx, os.Stdout, *folder)
}

// story has what the parts of the story share.
type story struct {
	folder string
	out    io.Writer // safe for concurrent use
	ledger work.Ledger
	ids    map[work.ID]string // the region of each item
}

// says prints one line of the story.
func says(out io.Writer, who, format string, args ...any) {
	_, _ = fmt.Fprintf(out, "   %-10s  %s\n", who, fmt.Sprintf(format, args...))
}

func (s *story) chapter(text string) { _, _ = fmt.Fprintf(s.out, "\n%s\n", text) }

// tell tells the story.
func tell(ctx context.Context, out io.Writer, folder string) (err error) {
	folder, tidy, err := settle(folder)
	if err != nil {
		return err
	}
	defer tidy()
	ledger, err := work.Open(ctx, storeURL(folder))
	if err != nil {
		return err
	}
	defer ledger.Close()
	s := &story{folder: folder, out: &oneByOne{w: out}, ledger: ledger, ids: map[work.ID]string{}}

	s.chapter("Five reports are to be written. They are items of one queue, and three agents share it.")
	if err := s.addReports(ctx); err != nil {
		return err
	}
	ann, err := s.start("ann")
	if err != nil {
		return err
	}
	defer end(ann)
	if err := untilStopped(ann.Process); err != nil {
		return err
	}
	says(s.out, "ann", "is frozen, with the report half finished (this is a real SIGSTOP)")

	s.chapter("Nobody knows whether ann is dead or slow. The others go on, " +
		"and the reconciler looks after what is left lying.")
	newsroom := openNewsroom(s.out)
	defer newsroom.Close()
	stopStewards, err := s.stewards(ctx, newsroom)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopStewards()) }()
	bob, err := s.start("bob")
	if err != nil {
		return err
	}
	defer end(bob)
	cleo, err := s.start("cleo")
	if err != nil {
		return err
	}
	defer end(cleo)
	if err := s.untilAllIsDone(ctx); err != nil {
		return err
	}

	s.chapter("All is done. Now ann wakes up, and knows nothing of it.")
	if err := wake(ann.Process); err != nil {
		return err
	}
	if err := ann.Wait(); err != nil {
		return fmt.Errorf("ann: %w", err)
	}
	return s.moral(ctx, newsroom)
}

// settle makes the folder of the story: the named one, or a temporary one.
func settle(folder string) (path string, tidy func(), err error) {
	if folder == "" {
		path, err = os.MkdirTemp("", "croft-agents-")
		return path, func() { _ = os.RemoveAll(path) }, err
	}
	if path, err = filepath.Abs(folder); err != nil {
		return "", nil, err
	}
	if _, err := os.Stat(filepath.Join(path, "croft.db")); err == nil {
		return "", nil, fmt.Errorf("%s has a story already; name another folder", path)
	}
	return path, func() {}, os.MkdirAll(path, 0o700)
}

// storeURL returns the URL of the leases and of the ledger. One file has both.
func storeURL(folder string) string {
	return "sqlite://" + filepath.ToSlash(filepath.Join(folder, "croft.db"))
}

// addReports adds the items. Unique is an idempotency key: adding the same
// content twice makes one item.
func (s *story) addReports(ctx context.Context) error {
	for i, region := range regions {
		item, err := work.Enqueue(ctx, s.ledger, queue, assignment{Region: region},
			&work.ItemOptions{Unique: region + ", week 7", Priority: -i})
		if err != nil {
			return err
		}
		s.ids[item.ID] = region
	}
	return nil
}

// start starts an agent in a process of its own.
func (s *story) start(name string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, "agent", name, s.folder)
	cmd.Stdout, cmd.Stderr = s.out, s.out
	err = cmd.Start()
	return cmd, err
}

// end kills an agent that has not ended.
func end(cmd *exec.Cmd) {
	if cmd.ProcessState == nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

// stewards runs the two housekeeping jobs of a ledger: the reconciler, and the
// dispatcher of effects. Each works under a lease, so they may run in every
// process of a deployment.
func (s *story) stewards(ctx context.Context, newsroom *newsroom) (stop func() error, err error) {
	client, err := croft.Open(ctx, storeURL(s.folder), nil)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 2)
	go func() {
		ended <- steward.RunReconciler(ctx, client, s.ledger, &steward.ReconcileOptions{
			Interval: ttl / 4,
			Observe: func(a steward.Action) {
				if a.Kind == steward.Requeued {
					says(s.out, "reconciler", "%q, which %s has, waits again: %s", s.ids[a.Item], a.Owner, a.Why)
				}
			},
		})
	}()
	go func() {
		// Items only name their destinations. The dispatcher knows where those
		// are.
		to := map[string]steward.Deliverer{
			"newsroom": steward.Webhook{URL: newsroom.URL, Secrets: [][]byte{newsroomSecret}},
		}
		ended <- steward.RunDispatcher(ctx, client, s.ledger, to, nil)
	}()
	return func() error {
		cancel()
		return errors.Join(<-ended, <-ended, client.Close())
	}, nil
}

// untilAllIsDone waits until every report is done and the newsroom has heard of
// it.
func (s *story) untilAllIsDone(ctx context.Context) error {
	for {
		stats, err := s.ledger.Stats(ctx, queue)
		if err != nil {
			return err
		}
		if len(stats) == 1 && stats[0].Sent == int64(len(regions)) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// moral shows which results count in the end.
func (s *story) moral(ctx context.Context, newsroom *newsroom) error {
	s.chapter("What counts:")
	for it, err := range s.ledger.List(ctx, work.Query{Queue: queue}) {
		if err != nil {
			return err
		}
		text, err := os.ReadFile(reportPath(s.folder, s.ids[it.ID]))
		if err != nil {
			return err
		}
		says(s.out, s.ids[it.ID], "%s by %s in attempt %d; its file says: %s", it.State, it.Record.Owner,
			it.Attempts, text)
	}
	says(s.out, "newsroom", "has heard of %d reports, under %d keys", newsroom.heard(), newsroom.keys())

	s.chapter("What did not count, as the ledger keeps it for operators:")
	for r, err := range s.ledger.Refusals(ctx, work.RefusalQuery{Queue: queue}) {
		if err != nil {
			return err
		}
		says(s.out, string(r.Verb), "of %q by %s under token %d, because %s had it under %d", s.ids[r.Item],
			r.PresentedOwner, r.Presented, r.NewestOwner, r.Newest)
	}
	s.chapter("A lease decided who may try. The token decided whose writes count.")
	return nil
}
