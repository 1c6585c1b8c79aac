package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft/boundary/httpfence"
	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

func (a *app) guardCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "guard show|raise|rekey|reset|sweep TARGET",
		GroupID: cli.GroupWrite,
		Short:   "Look at the fence of a guarded resource, or move it",
		Long: `A guarded resource keeps a mark: the newest stamp it has admitted. It refuses
the writes of older owners.

  show   prints the mark, its owner, writes and refusals; watch it to learn
         whether jobs run twice
  raise  advances the mark without writing, which shuts out older owners
  rekey  moves the resource to another key, on the record
  reset  takes back a mark that somebody made up, on the record
  sweep  removes what dead writes have left behind: unfinished uploads to
         object storage`,
		Example: `  croft guard show out/today.json
  croft guard raise out/today.json
  croft guard rekey out/today.json reports/weekly --note "the job was renamed"
  croft guard reset out/today.json --note "forged by a test script"
  croft guard sweep s3://bucket/out/today.json`,
		// Without this, cobra would take a mistyped subcommand for an argument,
		// print the help and exit with 0.
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("missing argument: show, raise, rekey, reset or sweep")
			}
			return errors.New(cli.DidYouMean(fmt.Sprintf("unknown command %q for %q", args[0], c.CommandPath()),
				c.SuggestionsFor(args[0])))
		},
		SuggestionsMinimumDistance: 2,
		RunE:                       func(*cobra.Command, []string) error { return nil },
	}
	c.AddCommand(a.guardShowCommand(), a.guardRaiseCommand(), a.guardRekeyCommand(), a.guardResetCommand(),
		a.guardSweepCommand())
	return c
}

func (a *app) guardRaiseCommand() *cobra.Command {
	var text string
	var unsure cli.UnsurePolicy
	c := &cobra.Command{
		Use:   "raise TARGET",
		Short: "Advance the mark without writing",
		Long: `Advance the mark of a guarded resource to your stamp, without writing. From then
on it refuses every older owner. Do this before the first read, so that no older
owner changes what you have read.

Exit code 13 says that a newer owner has been there already. Exit code 12 says
that the key has a newer owner, or that the store does not know the stamp. The
key's newest grant may raise the fence also after its lease has ended.`,
		Example: "  croft guard raise out/today.json\n  croft guard raise out/today.json --stamp \"$STAMP\"",
		Args:    cli.Takes("TARGET"),
		RunE: func(c *cobra.Command, args []string) error {
			s, err := a.Stamp(text, 0)
			if err != nil {
				return err
			}
			err = a.withGuard(c.Context(), args[0], func(ctx context.Context, g guard.Guard) (fence.Mark, error) {
				if err := a.Admissible(ctx, g, s, unsure, func(bool) {}); err != nil && !isNewestGrant(err, s) {
					return fence.Mark{}, err
				}
				return g.Raise(ctx, s)
			})
			return a.noteRefusal(c.Context(), "", s, err)
		},
	}
	cli.StampFlag(c.Flags(), &text)
	cli.UnsureFlag(c.Flags(), &unsure, cli.AdmitUnsure)
	return c
}

func (a *app) guardRekeyCommand() *cobra.Command {
	var note string
	c := &cobra.Command{
		Use:   "rekey TARGET KEY --note WHY",
		Short: "Move a guarded resource to another key",
		Long: `Move a guarded resource to another key, for work that was renamed. Its token
stays as a floor: the next writer needs a higher one. The resource keeps who did
it, and why.`,
		Example:           "  croft guard rekey out/today.json reports/weekly --note \"the job was renamed\"",
		Args:              cli.Takes("TARGET", "KEY"),
		ValidArgsFunction: a.CompleteSecondKey,
		RunE: func(c *cobra.Command, args []string) error {
			if err := fence.CheckKey(args[1]); err != nil {
				return err
			}
			return a.withGuard(c.Context(), args[0], func(ctx context.Context, g guard.Guard) (fence.Mark, error) {
				return g.Rekey(ctx, args[1], a.Actor(), note)
			})
		},
	}
	cli.NoteFlag(c, &note)
	return c
}

func (a *app) guardResetCommand() *cobra.Command {
	var note string
	var floor int64
	c := &cobra.Command{
		Use:   "reset TARGET --note WHY",
		Short: "Take back a mark that somebody made up",
		Long: `Take back a mark that somebody made up. Its token lies so far ahead that it
shuts out every owner. Reset lowers the token to the highest one that the store
has given out for the key, or to the store's present time if that is higher.
Owners up to now stay shut out. The present holder has to acquire the key anew,
and can then write. The resource keeps who did it, and why. If the store knows
nothing of the key, it cannot tell how high its tokens are. Then reset changes
nothing.

Guards refuse tokens that lie more than a year ahead of this machine's clock.
CROFT_MAX_AHEAD sets another bound. Below that bound no reset is needed if the
owner names the target with --guard, because the store then grants it a token
above the mark. A mark can be reset if it lies more than half of the bound
ahead, and above the tokens that the store has given out for its key. Look at
this machine's clock first. If it is behind, the mark may be right.`,
		Example: `  croft guard show out/today.json
  croft guard reset out/today.json --note "forged by a test script"`,
		Args: cli.Takes("TARGET"),
		RunE: func(c *cobra.Command, args []string) error {
			if c.Flags().Changed("floor") && floor < 1 {
				return cli.Invalid("--floor %d: it is a token, 1 or more", floor)
			}
			return a.withGuard(c.Context(), args[0], func(ctx context.Context, g guard.Guard) (fence.Mark, error) {
				to := fence.Token(floor)
				if floor == 0 {
					mark, err := g.Mark(ctx)
					if err != nil {
						return mark, err
					}
					if to, err = a.highest(ctx, mark.Key); err != nil {
						return mark, err
					}
				}
				return g.Reset(ctx, to, a.Actor(), note)
			})
		},
	}
	cli.NoteFlag(c, &note)
	c.Flags().Int64Var(&floor, "floor", 0, "bring it down to this `token` instead of asking the store")
	return c
}

// highest returns the highest token that the store can have given out for a
// key.
func (a *app) highest(ctx context.Context, key string) (fence.Token, error) {
	client, end, err := a.Client(ctx)
	if err != nil {
		return 0, err
	}
	defer end()
	defer a.AskOnTerminal()()
	st := client.Store()
	now, err := st.Now(ctx)
	if err != nil {
		return 0, fmt.Errorf("asking the store for its time, so that older owners stay shut out: %w; nothing was "+
			"changed", store.Unknown(err))
	}
	// A made-up mark can have an invalid key. The store has no record of it.
	if fence.CheckKey(key) != nil {
		return fence.Token(now.UnixMicro()), nil
	}
	rec, err := st.Get(ctx, key)
	if err != nil {
		return 0, fmt.Errorf("reading the record of %q, so that older owners stay shut out: %w; nothing was changed",
			key, store.Unknown(err))
	}
	// The key's tokens may lie ahead of the clock, so the time is no floor.
	if rec.IsZero() {
		return 0, cli.Invalid("store: it knows nothing of %s, so it cannot tell how high its tokens are; name the "+
			"store of the lease with --store, "+
			"or once no old writer lives the floor with --floor %d", cli.Word(key), now.UnixMicro())
	}
	return max(rec.Token, fence.Token(now.UnixMicro())), nil
}

func (a *app) guardSweepCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "sweep TARGET",
		Short: "Remove what dead writes have left behind",
		Long: `Remove what dead writes to a guarded resource have left behind: unfinished
uploads, and content that never became current, once they are a day old. Sweep
removes nothing that a living write needs. Writes sweep by themselves now and
then.`,
		Example: "  croft guard sweep s3://bucket/out/today.json",
		Args:    cli.Takes("TARGET"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.sweep(c.Context(), args[0])
		},
	}
}

// sweepView is a sweep in JSON.
type sweepView struct {
	Target  string `json:"target"`
	Removed int    `json:"removed"`
}

// sweep removes the leftovers of dead writes. A guard that is no Sweeper has
// none.
func (a *app) sweep(ctx context.Context, target string) error {
	return onGuard(ctx, target, func(ctx context.Context, g guard.Guard) (err error) {
		removed := 0
		if s, ok := g.(guard.Sweeper); ok {
			if removed, err = s.Sweep(ctx); err != nil {
				return err
			}
		}
		shown := store.Redact(g.Target())
		if a.JSON {
			a.Print(sweepView{Target: shown, Removed: removed})
			return nil
		}
		fmt.Fprintf(a.Stdout, "%s: removed %d\n", cli.Word(shown), removed)
		return nil
	})
}

// markView is a mark in JSON.
type markView struct {
	Target string `json:"target"`
	fence.Mark
}

// withGuard opens a resource, calls do, and prints the mark that do returns.
func (a *app) withGuard(
	ctx context.Context, target string, do func(context.Context, guard.Guard) (fence.Mark, error),
) error {
	return onGuard(ctx, target, func(ctx context.Context, g guard.Guard) error {
		mark, err := do(ctx, g)
		if err != nil {
			return err
		}
		shown := store.Redact(g.Target())
		if a.JSON {
			a.Print(markView{Target: shown, Mark: mark})
			return nil
		}
		a.printMark(shown, mark)
		return nil
	})
}

// onGuard opens a resource, calls do, and closes it.
func onGuard(ctx context.Context, target string, do func(context.Context, guard.Guard) error) error {
	ctx, stop := cli.Interruptible(ctx)
	defer stop()
	g, err := cli.OpenGuard(ctx, announced(target))
	if err != nil {
		return err
	}
	defer g.Close()
	return do(ctx, g)
}

// announced turns a resource's name in the place of marks that a proxy
// announces, as in "store-marks/orders/42", into the target of its mark. The
// proxy keeps that mark in one file, whatever slashes are in the name. Other
// targets stay as they are.
func announced(target string) string {
	if !guard.IsFile(target) || cli.IsURL(target) {
		return target
	}
	path, err := filepath.Abs(target)
	if err != nil || isGuarded(path) {
		return target
	}
	for dir := filepath.Dir(path); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		resource, err := filepath.Rel(dir, path)
		if err != nil {
			break
		}
		if kept := httpfence.MarkFile(dir, filepath.ToSlash(resource)); isGuarded(kept) {
			return kept
		}
	}
	return target
}

// isGuarded reports whether a file has a mark beside it: in a sidecar, or on a
// network mount in a chain.
func isGuarded(path string) bool {
	_, sidecar := os.Lstat(path + ".fence")
	_, chain := os.Lstat(path + ".fence.d")
	return sidecar == nil || chain == nil
}

// printMark prints a mark for people.
func (a *app) printMark(shown string, mark fence.Mark) {
	if mark.IsZero() {
		fmt.Fprintf(a.Stdout, "%s: not guarded yet; the first write there begins it\n", cli.Word(shown))
		return
	}
	if fence.Doubtful(mark.Token, time.Now()) {
		fmt.Fprintln(a.Stderr, "croft: this token lies far ahead of this machine's clock; if that is right, somebody "+
			"made it up: see croft guard reset --help")
	}
	fmt.Fprintf(a.Stdout, "target  %s\nkey     %s\ntoken   %d\n", cli.Word(shown), cli.Word(mark.Key), mark.Token)
	if mark.Grant != "" {
		fmt.Fprintf(a.Stdout, "grant   %s\n", mark.Grant)
	}
	if mark.Seq != 0 {
		fmt.Fprintf(a.Stdout, "seq     %d\n", mark.Seq)
	}
}

// isNewestGrant reports whether a refused stamp is still its key's newest
// grant. Such a stamp may raise the fence, because it shuts out only older
// owners.
func isNewestGrant(err error, s fence.Stamp) bool {
	var refused *tenure.NotOwnedError
	return errors.As(err, &refused) && refused.Record.Token == s.Token && refused.Record.Grant == s.Grant
}
