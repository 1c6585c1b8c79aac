// Package proxycmd is croft proxy: a fence in front of an HTTP service that
// cannot check stamps. Package boundary/httpfence has the fence itself.
package proxycmd

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft/boundary/httpfence"
	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/cmd/croft/internal/gatecmd"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// proxyFlags are the flags of proxy.
type proxyFlags struct {
	gatecmd.Flags
	upstream, listen   string
	resources, exempt  []string
	reads              []string
	unstamped, stream  bool
	maxBody, maxBodies cli.Bytes
	o                  httpfence.ProxyOptions
}

// app has the commands as methods.
type app struct{ *cli.App }

// Command is croft proxy.
func Command(a *cli.App) *cobra.Command { return (&app{a}).proxyCommand() }

func (a *app) proxyCommand() *cobra.Command {
	f := &proxyFlags{listen: "127.0.0.1:8080", maxBody: 64 << 20}
	c := &cobra.Command{
		Use:     "proxy --upstream URL --resource RULE",
		GroupID: cli.GroupWrite,
		Short:   "Put a fence in front of an HTTP service that cannot check",
		Long: `Pass requests on to a service that knows nothing of stamps, and refuse the
writes of owners that have been replaced. A write carries its stamp in the
header Croft-Stamp (inside "croft run": $CROFT_STAMP). A refusal is 409 with an
application/problem+json body. Its code is the one that --json prints.

A RULE says which requests write to which resource: [METHODS ]PATTERN[ as
RESOURCE][ for KEY]. {name} in the pattern stands for one segment of the path,
{name...} for the rest. Without METHODS, all but --read-methods are writes. The
proxy refuses a write that fits no rule. Reads pass, without a body: some
services would take it for the next request. Name reads that need a body with
--exempt.

The proxy also refuses a writer that is not the current owner of its key, before
a newer owner has written: a replaced owner, an owner whose lease has ended, a
made-up stamp. It asks the store of the writers' leases: --store, or --leases.
Where a store can notify, a takeover closes the proxy to the replaced owner
within milliseconds, or within 10 s if the notification is lost; elsewhere
within a second. A released lease counts for up to 10 s more. While the store
does not answer, the proxy refuses writes with 503, unless --when-unsure admit
lets the marks alone decide. The proxy's own leases are in --store. Once they
have lapsed, the proxy admits no write, whatever --when-unsure says.

One write at a time is under way to a resource, until the service has answered,
even if the client no longer waits. Before the proxy sends a write, it raises
the mark of the resource, durably, where --marks says. Among waiting writes, a
newer owner's goes first. One proxy at a time serves a resource, under a lease
in --store (croft-proxy/RESOURCE). Other proxies answer 503. If a write gets no
answer, or a proxy dies, the resource stays closed for --settle. Choose --settle
longer than a sent write can take to have its effect. "croft proxy open" opens
the resource earlier.

Clients call the proxy by its address, by localhost, or by a --host. The proxy
refuses requests for other names, so that no web page can reach it through a
name of its own. A proxy that listens on the network without any --host takes
all names. A client is one address. It may use as much of --max-writes,
--max-resources and --max-bodies as it leaves free for others: alone, half. The
proxy answers 429 to the rest.

With --observe the proxy refuses nothing. It passes every request on as it comes
and judges it beside that: "croft inventory --refusals" and the metric
croft_observed_refusals_total tell what would have been refused. Nothing is
protected meanwhile: a stale owner CAN OVERWRITE a newer owner's data. Marks are
kept as always. The proxy takes no lease of a resource, so stop it before one
without --observe begins. It still refuses host names that are not its own.

The proxy does not upgrade connections, so it refuses WebSockets. End it with an
interrupt or TERM: it finishes writes under way first.`,
		Example: `  croft proxy --upstream http://localhost:9000 --resource '/orders/{id}'
  croft proxy --upstream https://billing --resource '/{path...} as billing for jobs/billing' --settle forever
  croft proxy --upstream http://cms --resource '/pages/{id}/{rest...} as pages/{id}' \
    --exempt 'POST /pages/search' --marks 'redis://localhost/0#cms:{resource}'
  curl -X PUT -H "Croft-Stamp: $CROFT_STAMP" -d @order.json localhost:8080/orders/42   # inside croft run
  croft proxy --observe --upstream http://localhost:9000 --resource '/orders/{id}'   # a trial
  croft ls croft-proxy/                       # which proxy serves what, and what is closed
  croft proxy open orders/42 --note "the service was restarted"`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return errors.New(cli.DidYouMean(fmt.Sprintf("unknown command %q for %q", args[0], c.CommandPath()),
					c.SuggestionsFor(args[0])))
			}
			return nil
		},
		SuggestionsMinimumDistance: 2,
		RunE:                       func(c *cobra.Command, _ []string) error { return a.proxy(c.Context(), f) },
	}
	flags := c.Flags()
	flags.StringVar(&f.upstream, "upstream", "", "the `URL` of the service (required)")
	flags.StringArrayVar(&f.resources, "resource", nil,
		"which requests write to what: a `rule` (required, repeatable; the first that fits counts)")
	flags.StringArrayVar(&f.exempt, "exempt", nil,
		"a `rule` for requests that look like writes and write nothing: METHODS PATTERN (repeatable)")
	flags.StringSliceVar(&f.reads, "read-methods", []string{"GET", "HEAD", "OPTIONS", "TRACE"},
		"the `methods` that write nothing; all others are writes")
	flags.StringVar(&f.listen, "listen", f.listen, "the `address` to listen on; port 0 chooses a free one")
	flags.StringSliceVar(&f.o.Hosts, "host", nil, "a `name` by which clients call the proxy, beside its address and "+
		"localhost; \"*\" for any (repeatable; default: none on a loopback address, any elsewhere)")
	f.Add(flags)
	flags.BoolVar(&f.unstamped, "allow-unstamped", false,
		"admit writes without a stamp, unchecked, one at a time like the others")
	flags.BoolVar(&f.o.RefuseNothing, "observe", false,
		"refuse nothing: pass all requests on, and count those that would have been refused")
	f.o.TTL, f.o.Settle, f.o.Wait, f.o.Idle = 15*time.Second, 30*time.Second, time.Minute, time.Minute
	f.o.AnswerWithin, f.o.ConnectWithin, f.o.ReceiveWithin = 30*time.Second, 5*time.Second, time.Minute
	span := func(value *time.Duration, least, most time.Duration, forever bool, name, usage string) {
		gatecmd.Span(flags, value, least, most, forever, name, usage)
	}
	span(&f.o.TTL, tenure.MinTTL, time.Minute, false, "ttl",
		"how long a proxy that died keeps others from its resources; the same for all")
	span(&f.o.Settle, time.Millisecond, tenure.MaxPeriod, true, "settle", "how long a resource stays closed when a "+
		"write may still be under way, or \"forever\": until an operator opens it")
	span(&f.o.Wait, time.Millisecond, tenure.MaxPeriod, false, "wait",
		"how long a write waits for its turn, and for a closed resource to open")
	span(&f.o.Idle, time.Millisecond, tenure.MaxPeriod, false, "idle",
		"how long the lease of a resource that nobody writes to is kept")
	span(&f.o.AnswerWithin, time.Millisecond, tenure.MaxPeriod, false, "answer-within",
		"how long the service may take to answer a write; at most --settle")
	span(&f.o.ConnectWithin, time.Millisecond, time.Hour, false, "connect-within",
		"how long it may take to connect to the service")
	span(&f.o.ReceiveWithin, time.Millisecond, tenure.MaxPeriod, false, "receive-within",
		"how long a client may take to send the body of a write")
	flags.Var(&f.maxBody, "max-body", "the longest body of a write, in bytes or as in 64MiB")
	flags.Var(&f.maxBodies, "max-bodies", "the total size of buffered bodies; one client may use half (default 1GiB, "+
		"or four times --max-body if that is more)")
	flags.IntVar(&f.o.MaxWrites, "max-writes", 4096,
		"how many writes may wait or be under way at once; one client may use half")
	flags.IntVar(&f.o.MaxResources, "max-resources", 1<<16,
		"how many resources may be in use at once, each until it has been idle for --idle; one client may use half")
	flags.BoolVar(&f.stream, "stream-bodies", false,
		"pass bodies on as they come instead of buffering them; a body that breaks off closes the resource")
	_ = c.MarkFlagRequired("upstream")
	_ = c.MarkFlagRequired("resource")
	c.AddCommand(a.proxyOpenCommand())
	return c
}

// options turns the flags into ProxyOptions and returns the upstream's URL.
func (f *proxyFlags) options() (*url.URL, error) {
	upstream, err := url.Parse(f.upstream)
	if err != nil {
		return nil,
			cli.Invalid("upstream %q: it is no URL; write it as in http://localhost:9000", store.Redact(f.upstream))
	}
	for _, each := range []struct {
		texts []string
		rules *[]httpfence.Rule
	}{{f.resources, &f.o.Rules}, {f.exempt, &f.o.Exempt}} {
		for _, text := range each.texts {
			rule, err := httpfence.ParseRule(text)
			if err != nil {
				return nil, err
			}
			*each.rules = append(*each.rules, rule)
		}
	}
	for _, method := range f.reads {
		if method == "" || strings.ToUpper(method) != method {
			return nil, cli.Invalid("--read-methods: %q is no method; they are written in capitals", method)
		}
	}
	for name, n := range map[string]int{"max-writes": f.o.MaxWrites, "max-resources": f.o.MaxResources} {
		if n < 1 {
			return nil, cli.Invalid("--%s %d: it must be at least 1", name, n)
		}
	}
	if f.maxBodies != 0 && f.maxBodies < f.maxBody {
		return nil, cli.Invalid("--max-bodies %s: it must be at least as much as one body may have (--max-body %s)",
			&f.maxBodies, &f.maxBody)
	}
	f.o.Reads, f.o.AllowUnstamped, f.o.StreamBodies, f.o.MaxBody, f.o.MaxBodies = f.reads, f.unstamped, f.stream,
		int64(f.maxBody), int64(f.maxBodies)
	return upstream, nil
}

func (a *app) proxy(ctx context.Context, f *proxyFlags) error {
	ctx, stop := cli.Interruptible(ctx)
	defer stop()
	upstream, err := f.options()
	if err != nil {
		return err
	}
	g, err := gatecmd.Open(ctx, a.App, &f.Flags, gatecmd.Events(a.App, ""),
		gatecmd.Namespaces(f.o.Rules, func(r httpfence.Rule) string { return r.Key })...)
	if err != nil {
		return err
	}
	defer g.End()
	f.o.Keys, f.o.Marks, f.o.Served, f.o.Client, f.o.Observe = g.Keys, g.Marks.Open, g.Marks.Served, g.Client, g.Observe
	f.o.Current, f.o.Notes, f.o.AdmitUnsure = g.Leases.Current, g.Leases.Notes, g.AdmitUnsure
	proxy, err := httpfence.NewProxy(upstream, f.o)
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
