// Package mcpcmd is croft mcp: a fence in front of the tools of an MCP server.
// Package boundary/mcp has the fence itself, and says which goroutines it has.
// They call the observer that prints events, so it locks.
package mcpcmd

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft/boundary/mcp"
	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/cmd/croft/internal/gatecmd"
	"github.com/croft-dev/croft/guard/gate"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// flags are the flags of mcp.
type flags struct {
	gatecmd.Flags
	fences           []string
	upstream, listen string
	credential       string
	o                mcp.ProxyOptions
}

// overHTTP lists the flags that count only with --upstream.
var overHTTP = []string{"listen", "host", "connect-within", "receive-within"}

// app has the command as a method.
type app struct{ *cli.App }

// Command is croft mcp.
func Command(a *cli.App) *cobra.Command {
	f := &flags{}
	c := &cobra.Command{
		Use:     "mcp [flags] (-- UPSTREAM [ARGUMENT...] | --upstream URL)",
		GroupID: cli.GroupWrite,
		Short:   "Put a fence in front of the tools of an MCP server",
		Long: `Stand before an MCP server, and refuse the tool calls of an agent that has been
replaced. Everything else that the server offers passes.

With a command after --, croft runs the server and speaks MCP over standard
input and output. Name this command where the agent's host names the server. The
calls are made under the lease of the "croft run" or "croft hold" around the
agent: croft takes it from CROFT_LEASE, never from a message. Some hosts start
servers without the variables of their own environment. Have yours pass on
CROFT_LEASE and CROFT_STORE. Without a lease every write is refused, and reads
pass.

With --upstream, croft is an HTTP proxy for a server that speaks streamable
HTTP. Clients call it at --listen and the path of the URL. A write carries its
stamp in the header Croft-Stamp (inside "croft run": $CROFT_STAMP), as at "croft
proxy". One proxy serves many agents. It passes on no other header of a client
than those of MCP, so no Authorization either: give the server's own secret with
--credential. It asks nobody for a password: everyone who can reach it can read
with that secret, and write under a stamp that counts.

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

If a call gets no answer, it may have taken effect. Then croft closes the
resource for --settle. That is so if the server dies, if it takes longer than
--answer-within, and if the client cancels a call and the server does not say
within 10 s how it ended. Before that, croft kills a server that it runs, with
all that it has started, and ends. It cannot kill a server over HTTP: choose
--settle longer than a call there can take to have its effect. "croft proxy
open" opens the resource earlier.

--credential @FILE names a file with the server's secret, which only you can
read: one line, NAME=VALUE for the environment of a server that croft runs, or
"NAME: VALUE" for a header with --upstream. The secret reaches the server alone.
If the server repeats it in a message, croft hides it there.

With --idempotency, a call that was answered under the same stamp and with the
same arguments is answered again from memory, and not carried out again. A
failure is not kept. A call in doubt has no answer: made again, it is carried out
when the resource opens. When this croft has ended, nothing is kept.

With --observe croft refuses nothing, and judges beside that: "croft inventory
--refusals" and the metric croft_observed_refusals_total tell what would have
been refused. Nothing is protected meanwhile: a stale agent CAN OVERWRITE the
work of a newer one.

An agent that can also write files or run commands without this server is not
held back there.`,
		Example: `  croft run tasks/42 -- my-agent     # its MCP configuration names the next line as a server
  croft mcp --read read_file --read list_directory -- npx -y @modelcontextprotocol/server-filesystem /work
  croft mcp --fence 'update_order as orders/{id}' --fence '* as shop' -- shop-mcp-server
  croft mcp --upstream https://tools.example/mcp --listen 127.0.0.1:8090 --credential @tools.secret
  croft proxy open mcp/tasks/42 --note "looked: the file was not written"`,
		Args: func(c *cobra.Command, args []string) error {
			switch {
			case f.upstream == "" && (c.ArgsLenAtDash() != 0 || len(args) == 0):
				return errors.New("name the server's command after --, or its URL: " +
					"croft mcp [flags] -- UPSTREAM [ARGUMENT...], or croft mcp --upstream URL")
			case f.upstream != "" && len(args) > 0:
				return errors.New("there is a server's command and --upstream; give one of them")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if f.upstream == "" {
				for _, name := range overHTTP {
					if c.Flags().Changed(name) {
						return cli.Invalid("--%s: it counts only with --upstream; leave it out", name)
					}
				}
				return (&app{a}).serve(c.Context(), f, args)
			}
			if !c.Flags().Changed("answer-within") {
				f.o.AnswerWithin = min(30*time.Second, f.o.Settle)
			}
			return (&app{a}).proxy(c.Context(), f)
		},
	}
	fs := c.Flags()
	fs.StringArrayVar(&f.fences, "fence", nil,
		"which calls write to what: a `rule` (repeatable; the first that fits counts)")
	fs.StringArrayVar(&f.o.Reads, "read", nil, "a `tool` that writes nothing (repeatable)")
	fs.BoolVar(&f.o.TrustAnnotations, "trust-annotations", false,
		"take a tool for a read if the server says so (readOnlyHint)")
	fs.BoolVar(&f.o.Tasks, "tasks", false,
		"let calls become tasks of the server, which go on after their answer, unfenced")
	fs.StringVar(&f.upstream, "upstream", "", "the `URL` of a server that speaks streamable HTTP")
	fs.StringVar(&f.listen, "listen", "127.0.0.1:8080",
		"with --upstream: the `address` to listen on; port 0 chooses a free one")
	fs.StringSliceVar(&f.o.Hosts, "host", nil, "with --upstream: a `name` by which clients call the proxy, beside its "+
		"address and localhost; \"*\" for any (repeatable; default: none on a loopback address, any elsewhere)")
	fs.StringVar(&f.credential, "credential", "", "the server's secret: `@FILE`, with a line NAME=VALUE, "+
		"or with --upstream \"NAME: VALUE\"")
	fs.BoolVar(&f.o.Idempotent, "idempotency", false,
		"answer a call that was answered before from memory, under the same stamp and with the same arguments")
	f.Add(fs)
	fs.BoolVar(&f.o.RefuseNothing, "observe", false,
		"refuse nothing: pass all requests on, and count those that would have been refused")
	span := func(value *time.Duration, usual, least, most time.Duration, forever bool, name, usage string) {
		*value = usual
		gatecmd.Span(fs, value, least, most, forever, name, usage)
	}
	span(&f.o.TTL, 15*time.Second, tenure.MinTTL, time.Minute, false, "ttl",
		"how long a proxy that died keeps others from its resources; the same for all")
	span(&f.o.Settle, 30*time.Second, time.Millisecond, tenure.MaxPeriod, true, "settle",
		"how long a resource stays closed when a call may still take effect, "+
			"or \"forever\": until an operator opens it")
	span(&f.o.Wait, time.Minute, time.Millisecond, tenure.MaxPeriod, false, "wait",
		"how long a write waits for its turn, and for a closed resource to open")
	span(&f.o.AnswerWithin, 10*time.Minute, time.Millisecond, tenure.MaxPeriod, false, "answer-within",
		"how long the server may take to answer a write; with --upstream at most --settle, and 30s if not given")
	span(&f.o.ConnectWithin, 5*time.Second, time.Millisecond, time.Hour, false, "connect-within",
		"with --upstream: how long it may take to connect to the server")
	span(&f.o.ReceiveWithin, time.Minute, time.Millisecond, tenure.MaxPeriod, false, "receive-within",
		"with --upstream: how long a client may take to send a message")
	return c
}

// open opens what both kinds of proxy need, and completes the options.
func (a *app) open(ctx context.Context, f *flags) (*gatecmd.Gate, error) {
	for _, text := range f.fences {
		rule, err := mcp.ParseRule(text)
		if err != nil {
			return nil, err
		}
		f.o.Rules = append(f.o.Rules, rule)
	}
	if f.credential != "" {
		read := mcp.ParseVariable
		if f.upstream != "" {
			read = mcp.ParseHeader
		}
		text, err := cli.ReadCredential(f.credential)
		if err == nil {
			f.o.Credential, err = read(text)
		}
		if err != nil {
			return nil, err
		}
	}
	tell := gatecmd.Events(a.App, "mcp")
	g, err := gatecmd.Open(ctx, a.App, &f.Flags, func(e gate.Event) {
		e.Status = 0 // it belongs to an answer that no client gets
		tell(e)
	}, gatecmd.Namespaces(f.o.Rules, func(r mcp.Rule) string { return r.Key })...)
	if err != nil {
		return nil, err
	}
	f.o.Keys, f.o.Marks, f.o.Served, f.o.Client, f.o.Observe = g.Keys, g.Marks.Open, g.Marks.Served, g.Client, g.Observe
	f.o.Current, f.o.Notes, f.o.AdmitUnsure = g.Leases.Current, g.Leases.Notes, g.AdmitUnsure
	f.o.Dropped = func(err error) { fmt.Fprintf(a.Stderr, "croft: %s\n", cli.Lines(err.Error())) }
	return g, nil
}

// proxy serves clients over HTTP.
func (a *app) proxy(ctx context.Context, f *flags) error {
	ctx, stop := cli.Interruptible(ctx)
	defer stop()
	upstream, err := url.Parse(f.upstream)
	if err != nil {
		return cli.Invalid("--upstream %q: it is no URL; write it as in https://tools.example/mcp",
			store.Redact(f.upstream))
	}
	g, err := a.open(ctx, f)
	if err != nil {
		return err
	}
	defer g.End()
	proxy, err := mcp.NewProxy(upstream, f.o)
	if err != nil {
		return err
	}
	listener, err := gatecmd.Listen(f.listen)
	if err != nil {
		return err
	}
	gatecmd.Listening{
		Address: listener.Addr().String(), Upstream: upstream.Redacted(), Marks: g.Marks.Shown,
		Observe: f.o.RefuseNothing,
	}.Tell(a.App)
	return gatecmd.Serve(ctx, a.App, listener, proxy, f.o.AnswerWithin+f.o.ConnectWithin+5*time.Second)
}

// serve runs the server and passes messages between it and the client.
func (a *app) serve(ctx context.Context, f *flags, command []string) error {
	if a.JSON {
		return cli.Invalid("--json: standard output belongs to the protocol; leave it out")
	}
	ctx, stop := cli.Interruptible(ctx)
	defer stop()
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
	g, err := a.open(ctx, f)
	if err != nil {
		return err
	}
	defer g.End()
	switch {
	case f.o.RefuseNothing:
		gatecmd.TellTrial(a.App)
	case source == "":
		fmt.Fprintf(a.Stderr, "croft: %s is not set, so every write is refused; "+
			"run the agent inside croft run, and have its host pass the variable on\n", cli.EnvLease)
	}
	up, err := start(ctx, command, f.o.Credential)
	if err != nil {
		return err
	}
	return mcp.Serve(ctx, a.Stdin, a.Stdout.W, up, f.o.Options)
}
