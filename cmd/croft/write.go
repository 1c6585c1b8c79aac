package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

func (a *app) writeCommand() *cobra.Command {
	var o writeOptions
	var text, keys string
	var seq uint64
	c := &cobra.Command{
		Use:     "write TARGET [flags] [-- COMMAND [ARGUMENT...]]",
		GroupID: cli.GroupWrite,
		Short:   "Write a file, object or key, unless a newer owner has",
		Long: `Replace TARGET, a path or a URL, with what COMMAND prints, or with standard
input. The stamp says whose write it is. Inside "croft run" it is in
CROFT_STAMP. If TARGET has admitted a newer owner, it refuses the write with
exit code 13 and nothing changes.

If COMMAND fails, nothing changes either, and croft exits with its code. Behind
a pipe croft cannot know that: "generate | croft write" publishes whatever
generate printed before it failed. When COMMAND ends, croft kills what it left
running in the background. If a part of that still holds the output and is
silent for 2s, the content may lack something, so nothing changes.

If the store says that another owner, or nobody, holds the key, croft refuses
the write with exit code 12, even if no newer owner has written. If the store
does not answer within --timeout, the mark of TARGET decides alone, unless
--when-unsure refuse is given.

TARGET may be redis://HOST:6379/0#KEY, etcd://HOST:2379/#KEY (a path before # is
put in front of the key), s3://BUCKET/KEY, gs://BUCKET/KEY, or a file of a croft
server, https://HOST/files/PATH. Croft writes no rows of a database: the program
whose transaction they are in writes them.

With --observe croft refuses nothing. It writes also if the fence or the store
would refuse, says so on standard error, notes it in the store ("croft inventory
--refusals" lists it as observed), and exits with 0. Run a job like this for a
night to learn whether it runs twice. As long as anybody observes, a stale owner
CAN OVERWRITE a newer owner's content. The mark stays: it never goes down, so
the fence is up as soon as --observe is left out.

Readers see the old content or the new, never a part. The first write puts an
existing file under guard, and croft says so. A write that takes long shows its
progress on a terminal.`,
		Example: `  croft write out/today.json -- generate --all          # inside croft run
  compress < today | croft write out/today.gz           # if a half-done content does no harm
  croft write out/today.json --from build/today.json
  croft write 'etcd://localhost:2379/#config/current' --from current.yaml
  croft write out/today.json --stamp "$STAMP" < today   # STAMP: from acquire --json
  croft write out/log.json --seq 17 < log               # a late copy of write 16 is refused
  croft write --observe out/today.json -- generate      # a trial: refuse nothing, count what would be refused`,
		Args: func(c *cobra.Command, args []string) error {
			switch at := c.ArgsLenAtDash(); {
			case at == 0:
				return errors.New("missing argument: TARGET, before --")
			case at == 1 && len(args) == 1:
				return errors.New("missing command: croft write TARGET -- COMMAND")
			case at == 1 && o.from != "":
				return errors.New("--from and a command: the content comes from one of them")
			case at == 1:
				return nil
			case at < 0 && len(args) > 1:
				return errors.New("put -- between the target and the command: croft write TARGET -- COMMAND")
			}
			return cli.Takes("TARGET")(c, args)
		},
		RunE: func(c *cobra.Command, args []string) (err error) {
			if o.stamp, err = a.SignedStamp(text, seq, keys); err != nil {
				return err
			}
			o.target, o.command = args[0], args[1:]
			return a.write(c.Context(), o)
		},
	}
	flags := c.Flags()
	flags.StringVar(&o.from, "from", "", "read the content from this file instead of standard input")
	cli.StampFlag(flags, &text)
	cli.KeysFlag(flags, &keys)
	flags.Uint64Var(&seq, "seq", 0,
		"number of this write under its lease: the target refuses a number not above the last it admitted")
	cli.UnsureFlag(flags, &o.unsure, cli.AdmitUnsure)
	flags.BoolVar(&o.observe, "observe", false,
		"refuse nothing: write, and note in the store what would have been refused (stale owners can overwrite)")
	_ = c.MarkFlagFilename("from")
	return c
}

// writeOptions describe a write: its target, its content and its stamp.
type writeOptions struct {
	target  string
	from    string   // the file with the content; "" for standard input
	command []string // prints the content, if there is one
	stamp   fence.Stamp
	unsure  cli.UnsurePolicy
	observe bool
}

// content opens the content of the write.
func (a *app) content(ctx context.Context, o writeOptions) (io.Reader, func() error, error) {
	if len(o.command) > 0 {
		output := &commandOutput{ctx: ctx, app: a, command: o.command}
		return output, output.Close, nil
	}
	if o.from == "" {
		return a.Stdin, func() error { return nil }, nil
	}
	f, err := os.Open(o.from)
	if err != nil {
		return nil, nil, cli.Invalid("--from: %v; name a file that can be read", err)
	}
	if info, err := f.Stat(); err == nil && info.IsDir() {
		_ = f.Close()
		return nil, nil, cli.Invalid("--from: %s is a directory; name a file", o.from)
	}
	return f, f.Close, nil
}

// writeView is an admitted write in JSON.
type writeView struct {
	Target string `json:"target"`
	fence.Mark
	Bytes   int64 `json:"bytes"`
	Adopted bool  `json:"adopted"`
	// Refusal is the code that the write would have been refused with.
	Refusal string `json:"refusal,omitempty"`
}

func (a *app) write(ctx context.Context, o writeOptions) error {
	ctx, stop := cli.Interruptible(ctx)
	defer stop()
	s := o.stamp
	content, closeContent, err := a.content(ctx, o)
	if err != nil {
		return err
	}
	defer func() { _ = closeContent() }()
	g, err := cli.OpenGuard(ctx, o.target)
	if err != nil {
		return err
	}
	defer g.Close()
	shown := store.Redact(g.Target())
	artifact, ok := g.(guard.Artifact)
	if !ok {
		return cli.Invalid("target %s: it has no content that could be replaced; write to it through its own client",
			shown)
	}
	var undecided atomic.Pointer[bool] // whether the write was admitted although the store did not answer
	check := func() error {
		return a.Admissible(ctx, g, s, o.unsure, func(admitted bool) { undecided.Store(&admitted) })
	}
	shownContent, stopShowing := a.Progress(content)
	var receipt guard.Receipt
	var refusal error
	if o.observe {
		o.unsure = cli.AdmitUnsure
		receipt, refusal, err = guard.WriteAnyway(ctx, artifact, s, readUntil(ctx, shownContent), currentCheck(check))
	} else if err = check(); err == nil {
		clk := clock.System()
		receipt, err = artifact.Write(ctx, s, readUntil(ctx, &checkedAtEnd{shownContent, clk, clk.Now(), check}))
	}
	stopShowing()
	var failed *commandError
	if errors.As(err, &failed) {
		return a.commandFailed(cli.Word(shown), failed)
	}
	cli.TallyWrite(g.Target(), s, refusal, err)
	if admitted := undecided.Load(); admitted != nil {
		a.noteUnsure(ctx, g.Target(), s, *admitted || err == nil)
	}
	if err != nil {
		return a.noteRefusal(ctx, g.Target(), s, err)
	}
	if refusal != nil {
		a.noteLetIn(ctx, g.Target(), s, refusal)
		fmt.Fprintf(a.Stderr, "croft: OBSERVED, and written all the same: %s\n", cli.Lines(a.Redact(refusal.Error())))
	}
	if receipt.Adopted {
		fmt.Fprintf(a.Stderr, "croft: %s existed and is guarded from now on, by key %s\n", cli.Word(shown),
			cli.Word(receipt.Mark.Key))
	}
	if a.JSON {
		v := writeView{Target: shown, Mark: receipt.Mark, Bytes: receipt.Bytes, Adopted: receipt.Adopted}
		if refusal != nil {
			v.Refusal = cli.CodeOf(refusal)
		}
		a.Print(v)
		return nil
	}
	a.Confirm("wrote %s: %d bytes under token %d", cli.Word(shown), receipt.Bytes, receipt.Mark.Token)
	return nil
}

// currentCheck makes a function a guard.Current.
type currentCheck func() error

// Check implements guard.Current.
func (c currentCheck) Check(context.Context, fence.Stamp) error { return c() }

// readUntil reads r until ctx ends, so that an interrupt also ends a write from
// a silent terminal or pipe.
func readUntil(ctx context.Context, r io.Reader) io.Reader {
	pr, pw := io.Pipe()
	go func() {
		_, err := io.Copy(pw, r)
		pw.CloseWithError(err) // EOF if nil
	}()
	context.AfterFunc(ctx, func() { pw.CloseWithError(ctx.Err()) })
	return pr
}

// nameOwners adds to a refusal the owners of the two tokens, if the store
// remembers them.
func nameOwners(ctx context.Context, st store.Store, err error) {
	var stale *fence.StaleError
	if !errors.As(err, &stale) {
		return
	}
	rec, getErr := st.Get(ctx, stale.Newest.Key)
	if getErr != nil {
		return
	}
	stale.PresentedOwner = ownerOf(rec, stale.Presented.Token, stale.Presented.Grant)
	stale.NewestOwner = ownerOf(rec, stale.Newest.Token, stale.Newest.Grant)
}

// ownerOf finds the owner of a token in a key's history.
func ownerOf(rec tenure.Record, token fence.Token, grant fence.Grant) string {
	for _, t := range rec.History {
		if t.Token == token && t.Grant == grant {
			return t.Owner
		}
	}
	return ""
}

// checkedAtEnd reads the content of a write. If reading took long, it asks
// again at the end whether the write is still allowed.
type checkedAtEnd struct {
	io.Reader
	clk   clock.Clock // also counts while the machine sleeps
	since clock.Instant
	check func() error
}

// lateAfter is how long reading may take before checkedAtEnd asks again.
const lateAfter = time.Second

// Read returns the refusal in place of io.EOF.
func (r *checkedAtEnd) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if errors.Is(err, io.EOF) && r.clk.Now().Sub(r.since) > lateAfter {
		if refusal := r.check(); refusal != nil {
			return 0, refusal
		}
	}
	return n, err
}
