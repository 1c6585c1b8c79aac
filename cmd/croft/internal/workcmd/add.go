package workcmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/work"
)

// addOptions are the flags of work add.
type addOptions struct {
	request work.Request
	id      string
	at      string
	payload cli.Content
	lines   bool
	guards  []string
}

func (a *app) workAddCommand() *cobra.Command {
	o := addOptions{payload: cli.Content{What: "payload", Most: work.MaxPayload}}
	c := &cobra.Command{
		Use:   "add QUEUE PAYLOAD|-",
		Short: "Add an item to a queue and print its id",
		Long: `Add an item to a queue and print its id. Give the payload as the argument, - for
standard input, or a file with --from. It may have at most 1 MiB.

With --unique, adding the same again adds nothing and prints the id of the
existing item. Other content under the same key is an error, and adds nothing
either. After exit code 14 add the item again under the same key: the queue has
it once.

--guard names a resource that the item's workers write to: a file, or a URL. A
worker raises the fence there before it begins. Reassign, takeover, cancel,
replay and requeueing raise it, too, so the resource refuses the old owner at
once. In TARGET, {id} stands for the item's id, {queue} for its queue, and {key}
for both. A resource remembers one key, and every item has its own, so most
targets need {id} or {key}. Without --guard croft takes the targets of the queue
from CROFT_GUARDS, which lists QUEUE=TARGET separated by spaces.

With --partition, items belong to parts of the queue, such as tenants. Partitions
take turns: a million items of one do not hide ten of another. "croft work limit"
bounds what runs of each.

With --lines every line of the input is the payload of an item of its own, and
--unique KEY gives line N the key KEY:N. Workers claim the items in the order of
the lines.`,
		Example: `  croft work add thumbnails '{"image": 17}'
  croft work add mails --unique order-4711 --from mail.json
  croft work add reports '' --delay 1h --priority 5 --attempts 3
  croft work add reports '' --guard 'out/{id}.json'
  croft work add mails --partition tenant-42 --from mail.json
  seq 1000 | croft work add pages --lines --unique crawl-2026-07 -`,
		Args:              cli.Takes("QUEUE", "[PAYLOAD]"),
		ValidArgsFunction: a.completeQueue,
		RunE: func(c *cobra.Command, args []string) error {
			if c.Flags().Changed("unique") && o.request.Unique == "" {
				return cli.Invalid("--unique: it is empty; give a key, or leave it out")
			}
			if c.Flags().Changed("attempts") && o.request.Limit < 1 {
				return cli.Invalid("--attempts %d: it must be between 1 and %d", o.request.Limit, work.MaxTries)
			}
			o.request.Queue = args[0]
			var err error
			if o.request.Guards, err = guardTemplates(o.guards, args[0]); err != nil {
				return err
			}
			return a.workAdd(c.Context(), args[1:], o)
		},
	}
	flags := c.Flags()
	o.payload.Flag(c)
	flags.StringVar(&o.request.Unique, "unique", "", "idempotency `key`: the queue has one item under it")
	flags.StringVar(&o.request.Partition, "partition", "",
		"the `part` of the queue that it belongs to, such as a tenant")
	flags.IntVar(&o.request.Priority, "priority", 0, "higher is claimed first")
	delayFlag(flags, &o.request.Delay, "delay", "how long it waits before it can be claimed")
	flags.StringVar(&o.at, "at", "", "the `time` from which it can be claimed, as in 2026-01-31T08:00:00Z")
	flags.IntVar(&o.request.Limit, "attempts", 0,
		fmt.Sprintf("how many attempts before it is dead (default %d)", work.DefaultTries))
	flags.StringVar(&o.id, "id", "",
		"the item's `id`, 32 hex digits, to add it again after an unknown outcome (default: a new one)")
	flags.StringArrayVar(&o.guards, "guard", nil,
		"a `target` that workers write to, such as out/{id}.json; it refuses older owners at once (repeatable; "+
			"default: those of "+cli.EnvGuards+")")
	flags.BoolVar(&o.lines, "lines", false, "every line of the input is an item")
	return c
}

// guardTemplates returns the templates of an item's guards: those given, or the
// queue's own from the environment. Workers run in other folders, so it makes
// paths absolute.
func guardTemplates(given []string, queue string) ([]string, error) {
	if len(given) == 0 {
		for _, field := range strings.Fields(os.Getenv(cli.EnvGuards)) {
			name, target, found := strings.Cut(field, "=")
			if !found {
				return nil, cli.Invalid("%s %q: write QUEUE=TARGET, separated by spaces", cli.EnvGuards, field)
			}
			if name == queue {
				given = append(given, target)
			}
		}
	}
	templates := slices.Clone(given)
	for i, target := range templates {
		if target == "" || !guard.IsFile(target) || strings.Contains(target, "://") {
			continue
		}
		path, err := filepath.Abs(target)
		if err != nil {
			return nil, err
		}
		templates[i] = path
	}
	return templates, nil
}

func (a *app) workAdd(ctx context.Context, args []string, o addOptions) error {
	o.request.Verb, o.request.ID = work.Add, work.ID(o.id)
	if o.at != "" {
		at, err := time.Parse(time.RFC3339Nano, o.at)
		if err != nil {
			return cli.Invalid("--at %q: it is no time; write it as in 2026-01-31T08:00:00Z", o.at)
		}
		o.request.NotBefore = at
	}
	if o.lines {
		return a.workAddLines(ctx, args, o)
	}
	payload, given, err := o.payload.Read(a.App, args)
	if err != nil {
		return err
	}
	if !given {
		return &cli.UsageError{
			Message: "no payload given",
			Hint:    "give it as an argument ('' if there is none), - for standard input, or --from FILE",
		}
	}
	if o.request.Payload = payload; o.id == "" {
		o.request.ID = work.NewID()
	}
	answers, err := a.applied(ctx, o.request)
	if err != nil {
		return err
	}
	return a.printAdded(answers)
}

// printAdded prints ids on standard output, for scripts. It says on standard
// error, for people, that an item existed already.
func (a *app) printAdded(answers []work.Answer) error {
	return a.printAnswers(answers, func(answer work.Answer) string {
		if answer.Repeated {
			fmt.Fprintf(a.Stderr, "croft: %s was there already: %s\n", answer.Item.ID, answer.Item.State)
		}
		return string(answer.Item.ID)
	})
}

// addAtOnce is how many items one call adds.
const addAtOnce = 500

// workAddLines adds an item for every line. It stops at the first bad line. The
// lines before are added, and their ids are printed.
func (a *app) workAddLines(ctx context.Context, args []string, o addOptions) error {
	if o.id != "" {
		return &cli.UsageError{
			Message: "--id and --lines do not go together",
			Hint:    "give --unique to be able to add the lines again",
		}
	}
	in := a.Stdin
	switch {
	case len(args) > 0 && (args[0] != "-" || o.payload.From != ""), len(args) == 0 && o.payload.From == "":
		return &cli.UsageError{Message: "--lines reads a file or standard input", Hint: "give --from FILE or -"}
	case o.payload.From != "" && o.payload.From != "-":
		f, err := os.Open(o.payload.From)
		if err != nil {
			return cli.Invalid("--from: %v", err)
		}
		defer f.Close()
		in = f
	}
	in, stop := a.Progress(in)
	defer stop()
	l, err := a.ledger(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	reader, n := bufio.NewReaderSize(in, 64<<10), 0
	for more := true; more; {
		var batch []work.Request
		var wrong error
		for len(batch) < addAtOnce && more && wrong == nil {
			var payload []byte
			if payload, more, wrong = lineOf(reader); wrong != nil || (!more && len(payload) == 0) {
				break
			}
			n++
			req := o.request
			req.ID, req.Payload = work.NewID(), payload
			if req.Unique != "" {
				req.Unique = fmt.Sprintf("%s:%d", req.Unique, n)
			}
			if wrong = req.Check(); wrong == nil {
				batch = append(batch, req)
			}
		}
		if len(batch) > 0 {
			if err := a.printAdded(a.apply(ctx, l, batch)); err != nil {
				return err
			}
		}
		if wrong != nil {
			return fmt.Errorf("line %d: %w", max(n, 1), wrong)
		}
	}
	return nil
}

// lineOf reads a line without its end. more is false after the last line.
func lineOf(r *bufio.Reader) (text []byte, more bool, err error) {
	for {
		part, err := r.ReadSlice('\n')
		text = append(text, part...)
		switch {
		case err == nil:
			return text[:len(text)-1], true, nil
		case errors.Is(err, io.EOF):
			return text, false, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, false, cli.Invalid("input: it could not be read: %v", err)
		case len(text) > work.MaxPayload:
			return text, true, nil // too long already: the ledger's check refuses it
		}
	}
}
