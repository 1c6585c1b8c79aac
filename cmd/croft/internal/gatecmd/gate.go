// Package gatecmd is what croft proxy and croft mcp have in common: flags, what
// a gate needs, how its events are printed, and how a server ends.
//
// The goroutine of a command waits for the server's failure or for a signal,
// and then stops the server and the gate. The server and the gate serve on
// goroutines of their own. They call the observer that prints events, so it
// locks.
package gatecmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/fence/signed"
	"github.com/croft-dev/croft/guard/gate"
)

// Flags say where a gate finds what it needs.
type Flags struct {
	marks, leases, keys, metrics string
	unsure                       cli.UnsurePolicy
}

// Add defines the flags.
func (f *Flags) Add(fs *pflag.FlagSet) {
	fs.StringVar(&f.marks, "marks", "", cli.MarksUsage)
	fs.StringVar(&f.leases, "leases", "", cli.LeasesUsage)
	cli.UnsureFlag(fs, &f.unsure, cli.RefuseUnsure)
	cli.KeysFlag(fs, &f.keys)
	fs.StringVar(&f.metrics, "metrics", "", "serve metrics for Prometheus at `host:port` (:port is this machine "+
		"only), or keep them in a file that ends in .prom")
}

// Span defines a flag with a duration. Its default is its value.
func Span(
	fs *pflag.FlagSet, value *time.Duration, least, most time.Duration, forever bool, name, usage string,
) {
	bounds := &cli.Duration{Value: value, Least: least, Most: most, Forever: forever, Examples: "30s, 5m or 1h"}
	fs.Var(bounds, name, usage)
}

// Gate is what a gate needs.
type Gate struct {
	Keys        *signed.Keys
	Marks       cli.Marks
	Client      *croft.Client
	Leases      cli.Followed
	AdmitUnsure bool
	Observe     func(gate.Event)
	ends        []func()
}

// Open opens what a gate needs. The namespaces get metric labels of their own.
// Call End after the gate has been closed.
func Open(
	ctx context.Context, a *cli.App, f *Flags, observe func(gate.Event), namespaces ...string,
) (_ *Gate, err error) {
	g := &Gate{AdmitUnsure: f.unsure == cli.AdmitUnsure, Observe: observe}
	defer func() {
		if err != nil {
			g.End()
		}
	}()
	if g.Keys, err = cli.ReadKeys(f.keys); err != nil {
		return nil, err
	}
	if g.Marks, err = a.OpenMarks(ctx, f.marks); err != nil {
		return nil, err
	}
	metrics, err := a.StartMetrics(f.metrics, namespaces...)
	if err != nil {
		return nil, err
	}
	g.ends = append(g.ends, metrics.End)
	if metrics.Metrics != nil {
		g.Observe = func(e gate.Event) {
			metrics.Metrics.Gate(e)
			observe(e)
		}
	}
	client, end, err := a.ObservedClient(ctx, metrics.Observe())
	if err != nil {
		return nil, err
	}
	g.Client, g.ends = client, append(g.ends, end)
	if g.Leases, err = a.FollowLeases(ctx, client.Store(), f.leases); err != nil {
		return nil, err
	}
	g.ends = append(g.ends, g.Leases.End)
	return g, nil
}

// Namespaces returns those of the keys in the rules of a gate. They get metric
// labels of their own, so clients cannot use up the labels with made-up
// namespaces.
func Namespaces[R any](rules []R, key func(R) string) []string {
	var all []string
	for _, rule := range rules {
		if space := fence.Namespace(key(rule)); !strings.Contains(space, "{") {
			all = append(all, space)
		}
	}
	return all
}

// End closes what Open has opened.
func (g *Gate) End() {
	for i := len(g.ends) - 1; i >= 0; i-- {
		g.ends[i]()
	}
	g.ends = nil
}

// readsEnd is how long reads may go on after the last write, when a server
// stops.
const readsEnd = 2 * time.Second

// Handler answers requests until it is closed.
type Handler interface {
	http.Handler
	Close(ctx context.Context) error
}

// Listen listens at the address of --listen.
func Listen(address string) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, cli.Invalid("--listen %s: %v; choose another address", address, err)
	}
	return listener, nil
}

// Serve answers requests until ctx ends. Then it waits for the writes under
// way, at most as long as bound, because a sent write cannot be taken back. A
// proxy that ends in order hands its resources over at once.
func Serve(ctx context.Context, a *cli.App, listener net.Listener, h Handler, bound time.Duration) error {
	server := &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		ErrorLog: log.New(io.Discard, "", 0),
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), bound)
	defer cancel()
	fmt.Fprintln(a.Stderr, "croft: stopping; writes under way are finished first")
	closed := make(chan error, 1)
	// Close sends the waiting writes away. Shutdown would wait for them.
	go func() {
		closed <- h.Close(last)
		time.AfterFunc(readsEnd, cancel)
	}()
	if server.Shutdown(last) != nil {
		// Only reads are left, and some never end. Close reports writes.
		_ = server.Close()
	}
	return errors.Join(err, <-closed)
}
