// Package mcpcmd is croft mcp: a fence in front of the tools of an MCP server.
// Package boundary/mcp has the fence itself, and says which goroutines it has.
// They call the observer that prints events, so it locks.
package mcpcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/boundary/mcp"
	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/guard/gate"
	"github.com/croft-dev/croft/internal/supervise"
	"github.com/croft-dev/croft/tenure"
)

// flags are the flags of mcp.
type flags struct {
	fences        []string
	marks, leases string
	unsure        cli.UnsurePolicy
	o             mcp.Options
}

// app has the command as a method.
type app struct{ *cli.App }

// Command is croft mcp.
func Command(a *cli.App) *cobra.Command {
	f := &flags{}
	c := &cobra.Command{
		Use:     "mcp [flags] -- UPSTREAM [ARGUMENT...]",
		GroupID: cli.GroupWrite,
		Short:   "Put a fence in front of the tools of an MCP server",
		Long: `Run an MCP server, and refuse the tool calls of an agent that has been replaced.
Name this command where the agent's host names the server. It speaks MCP over
standard input and output, and passes on everything that the server offers.

The calls are made under the lease of the "croft run" or "croft hold" around the
agent: croft takes it from CROFT_LEASE, never from a message. Some hosts start
servers without the variables of their own environment. Have yours pass on
CROFT_LEASE and CROFT_STORE. Without a lease every write is refused, and reads
pass.

Every call of a tool is a write, unless --read names the tool. Without --fence
all writes are to one resource, which belongs to the lease's key. A RULE of
--fence names the resource: TOOL[ as RESOURCE][ for KEY], with * for all tools.
{argument} stands for that argument of the call, a string or an integer. The
first rule that fits counts, and a write that fits no rule is refused.

One write at a time is under way to a resource, in all proxies together, until
the server has answered. Before croft sends a write on, it raises the mark of
the resource, durably, where --marks says. It also asks the store whether the
lease is the current one. A refusal is a result with isError, a code and the
owner of the task. "croft inventory --refusals" shows it.

If a call gets no answer, it may have taken effect. Then croft kills the server
with all that it has started, closes the resource for --settle, and ends. That
is so if the server dies, if it takes longer than --answer-within, and if the
client cancels a call and the server does not say within 10 s how it ended.
"croft proxy open" opens the resource earlier.

An agent that can also write files or run commands without this server is not
held back there. Croft speaks no HTTP here, and keeps no secrets for the server.`,
		Example: `  croft run tasks/42 -- my-agent     # its MCP configuration names the next line as a server
  croft mcp --read read_file --read list_directory -- npx -y @modelcontextprotocol/server-filesystem /work
  croft mcp --fence 'update_order as orders/{id}' --fence '* as shop' -- shop-mcp-server
  croft proxy open mcp/tasks/42 --note "looked: the file was not written"`,
		Args: func(c *cobra.Command, args []string) error {
			if c.ArgsLenAtDash() != 0 || len(args) == 0 {
				return errors.New("name the server's command after --: croft mcp [flags] -- UPSTREAM [ARGUMENT...]")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return (&app{a}).serve(c.Context(), f, args) },
	}
	fs := c.Flags()
	fs.StringArrayVar(&f.fences, "fence", nil,
		"which calls write to what: a `rule` (repeatable; the first that fits counts)")
	fs.StringArrayVar(&f.o.Reads, "read", nil, "a `tool` that writes nothing (repeatable)")
	fs.BoolVar(&f.o.TrustAnnotations, "trust-annotations", false,
		"take a tool for a read if the server says so (readOnlyHint)")
	fs.BoolVar(&f.o.Tasks, "tasks", false,
		"let calls become tasks of the server, which go on after their answer, unfenced")
	fs.StringVar(&f.marks, "marks", "", cli.MarksUsage)
	fs.StringVar(&f.leases, "leases", "", cli.LeasesUsage)
	cli.UnsureFlag(fs, &f.unsure, cli.RefuseUnsure)
	span := func(value *time.Duration, usual, least, most time.Duration, forever bool, name, usage string) {
		*value = usual
		fs.Var(&cli.Duration{Value: value, Least: least, Most: most, Forever: forever, Examples: "30s, 5m or 1h"},
			name, usage)
	}
	span(&f.o.TTL, 15*time.Second, tenure.MinTTL, time.Minute, false, "ttl",
		"how long a proxy that died keeps others from its resources; the same for all")
	span(&f.o.Settle, 30*time.Second, time.Millisecond, tenure.MaxPeriod, true, "settle",
		"how long a resource stays closed when a call may still take effect, "+
			"or \"forever\": until an operator opens it")
	span(&f.o.Wait, time.Minute, time.Millisecond, tenure.MaxPeriod, false, "wait",
		"how long a write waits for its turn, and for a closed resource to open")
	span(&f.o.AnswerWithin, 10*time.Minute, time.Millisecond, tenure.MaxPeriod, false, "answer-within",
		"how long the server may take to answer a write")
	return c
}

// serve runs the server and passes messages between it and the client.
func (a *app) serve(ctx context.Context, f *flags, command []string) error {
	if a.JSON {
		return cli.Invalid("--json: standard output belongs to the protocol; leave it out")
	}
	ctx, stop := cli.Interruptible(ctx)
	defer stop()
	for _, text := range f.fences {
		rule, err := mcp.ParseRule(text)
		if err != nil {
			return err
		}
		f.o.Rules = append(f.o.Rules, rule)
	}
	source := os.Getenv(cli.EnvLease)
	if source == "-" {
		return cli.Invalid("%s: standard input belongs to the protocol; name a file there", cli.EnvLease)
	}
	if source != "" {
		deed, err := a.Deed(nil)
		if err != nil {
			return err
		}
		f.o.Stamp = deed.Stamp()
	}
	marks, err := a.OpenMarks(ctx, f.marks)
	if err != nil {
		return err
	}
	client, end, err := a.Client(ctx)
	if err != nil {
		return err
	}
	defer end()
	leases, err := a.FollowLeases(ctx, client.Store(), f.leases)
	if err != nil {
		return err
	}
	defer leases.End()
	f.o.Client, f.o.Marks, f.o.Served, f.o.Observe = client, marks.Open, marks.Served, a.tell()
	f.o.Current, f.o.Notes, f.o.AdmitUnsure = leases.Current, leases.Notes, f.unsure == cli.AdmitUnsure
	f.o.Dropped = func(err error) { fmt.Fprintf(a.Stderr, "croft: %s\n", cli.Lines(err.Error())) }
	if source == "" {
		fmt.Fprintf(a.Stderr, "croft: %s is not set, so every write is refused; "+
			"run the agent inside croft run, and have its host pass the variable on\n", cli.EnvLease)
	}
	up, err := start(ctx, command)
	if err != nil {
		return err
	}
	return mcp.Serve(ctx, a.Stdin, a.Stdout.W, up, f.o)
}

// start runs the server. It does not get the lease, which holds a secret: the
// stamp in its environment is enough for writes of its own.
func start(ctx context.Context, command []string) (mcp.Upstream, error) {
	var none mcp.Upstream
	in, toServer, err := os.Pipe()
	if err != nil {
		return none, err
	}
	fromServer, out, err := os.Pipe()
	if err != nil {
		_, _ = in.Close(), toServer.Close()
		return none, err
	}
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, cli.EnvLease+"=") })
	child, err := supervise.Start(ctx, command, &supervise.Options{
		Env: env, Stdin: in, Stdout: out, Stderr: os.Stderr, Aside: true,
	})
	_, _ = in.Close(), out.Close() // the server has these ends now
	if err != nil {
		_, _ = toServer.Close(), fromServer.Close()
		return none, cli.Invalid("the server: %v", err)
	}
	return mcp.Upstream{In: toServer, Out: fromServer, Kill: child.Kill, AllowFor: child.AllowFor}, nil
}

// tell returns an observer that prints on standard error what an operator
// should know.
func (a *app) tell() func(gate.Event) {
	var mu sync.Mutex
	return func(e gate.Event) {
		message := ""
		if e.Err != nil {
			message = a.Redact(e.Err.Error())
		}
		var what string
		switch e.Kind {
		case gate.Refused:
			what = fmt.Sprintf("refused: %s (%s): %s", cli.Word(e.Method), e.Code, message)
		case gate.InDoubt:
			what = fmt.Sprintf("in doubt: %s of token %d: %s", cli.Word(e.Method), e.Token, message)
		case gate.Closed:
			what = fmt.Sprintf("closed for %s: %s", e.For, message)
			if e.For == croft.Forever {
				what = "closed until an operator opens it: " + message
			}
		case gate.Opened:
			what = "open again"
		default:
			return
		}
		resource := e.Resource
		if resource == "" {
			resource = "mcp"
		}
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(a.Stderr, "croft: %s: %s\n", cli.Word(resource), cli.Lines(what))
	}
}
