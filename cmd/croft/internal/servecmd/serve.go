// Package servecmd is croft serve: a lease store over HTTP. Package server has
// the server itself.
//
// The goroutine of the command waits for the server's failure or for a signal,
// and then drains the server. The server calls the observer from goroutines of
// its own, so the observer locks.
package servecmd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"golang.org/x/net/netutil"

	"github.com/croft-dev/croft/cmd/croft/internal/backends"
	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/cmd/croft/internal/issuers"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/fsys"
	"github.com/croft-dev/croft/observe"
	"github.com/croft-dev/croft/server"
	"github.com/croft-dev/croft/server/access"
	"github.com/croft-dev/croft/server/page"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/work"
)

// app has the commands as methods.
type app struct{ *cli.App }

// Command is croft serve.
func Command(a *cli.App) *cobra.Command { return (&app{a}).serveCommand() }

// flags are the flags of serve.
type flags struct {
	listen, cert, key, clientCA string
	policy, metrics, signKey    string
	files, sessionKey           string
	hosts, guards               []string
	insecure                    bool
	streams                     int
	maxFile                     cli.Bytes
}

// maxCalls is how many calls the server works on at a time.
const maxCalls = 1024

// drainWithin bounds the end of a server. A call of the store takes less.
const drainWithin = 15 * time.Second

func (a *app) serveCommand() *cobra.Command {
	f := &flags{listen: "127.0.0.1:7117", maxFile: 1 << 30}
	c := &cobra.Command{
		Use:     "serve",
		GroupID: cli.GroupTool,
		Short:   "Serve the store over HTTP, for every language and machine",
		Long: `Serve the store over HTTP. Programs in any language can then hold leases, on
machines that must not hold the store's password. Other crofts use the server as
a store: --store http://127.0.0.1:7117, or https://HOST on a network.

A browser shows the server's page at the same address: what is held and by whom,
refused writes, work items, and the health of the store. With a policy it asks
for a token.

The server adds no rules of its own to leases, and does not keep them. Any
number of servers may serve one store, and a server that is restarted costs no
lease. Requests of all clients go to the store in few calls.

With a SQLite file or PostgreSQL it also serves the work items there, for every
"croft work" with the server as its --store. Other stores keep no work items.

Without --store, CROFT_STORE or a configured store, leases and work items are in
one SQLite file beside the default store, for this machine and all that reach the
server.

--policy names the file that says who may what: tokens, client certificates,
OpenID Connect issuers, and rules. Without it everybody who reaches the server
may do everything. So on anything but a loopback address croft refuses to start
without --policy, --cert and --key, unless --insecure is given. "croft serve
check-policy" explains what a policy decides. The owner in a record is the name
in the policy.

With --files the server also guards files on its own disk, for machines that do
not share it: "croft write https://HOST/files/PATH". It admits a write only from
the current owner of a lease, and with --sign-key only under a signed stamp. In
the policy, the file at PATH is the key files/PATH. Longer content stays in
.croft-uploads in the folder until it is whole, so that a client whose connection
breaks goes on where it was.

Clients call a server on a loopback address by its address, by localhost, or by
a --host. It refuses requests for other names, so that no web page can reach it
through a name of its own.

End it with an interrupt or TERM: it takes no new calls, answers those that are
under way, and closes streams. To change certificates or the policy, restart it.`,
		Example: `  croft serve                                             # this machine, a SQLite file
  croft serve --store postgres://croft@db/croft --listen :7117 \
    --cert croft.pem --key croft.key --policy /etc/croft/policy
  croft ls --store http://127.0.0.1:7117
  curl http://127.0.0.1:7117/v1/leases
  croft serve check-policy /etc/croft/policy ann acquire reports/daily`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return errors.New(cli.DidYouMean(fmt.Sprintf("unknown command %q for %q", args[0], c.CommandPath()),
					c.SuggestionsFor(args[0])))
			}
			return nil
		},
		SuggestionsMinimumDistance: 2,
		RunE:                       func(c *cobra.Command, _ []string) error { return a.serve(c.Context(), f) },
	}
	flags := c.Flags()
	flags.StringVar(&f.listen, "listen", f.listen, "the `address` to listen on; port 0 chooses a free one")
	flags.StringVar(&f.cert, "cert", "", "the server's certificate, with those above it: a PEM `file`")
	flags.StringVar(&f.key, "key", "", "the key of the certificate: a PEM `file`")
	flags.StringVar(&f.clientCA, "client-ca", "",
		"the authorities of client certificates, which the policy can name: a PEM `file`")
	flags.StringVar(&f.policy, "policy", "", "who may what: a `file`")
	flags.StringVar(&f.signKey, "sign-key", "", "sign the stamps of leases with the private key in this PEM `file`, "+
		"of mode 0600; more keys in it are published beside")
	flags.StringVar(&f.sessionKey, "session-key", "", "sign visitors of the page in for all servers that have this "+
		"`file`, of mode 0600; make it with openssl rand -base64 32")
	flags.StringVar(&f.files, "files", "", "offer the files below this `folder` as targets: https://HOST/files/PATH")
	flags.Var(&f.maxFile, "max-file", "the longest content of a file, in bytes or as in 64MiB; there are at most 64 "+
		"unfinished uploads on the disk of --files")
	flags.StringArrayVar(&f.guards, "guards", nil, "also show on the page the marks of guards in this `place`: "+
		"a folder, or a URL such as s3://bucket/reports (repeatable)")
	flags.StringSliceVar(&f.hosts, "host", nil, "a `name` by which clients call the server, beside its address and "+
		"localhost; \"*\" for any (repeatable; default: none on a loopback address, any elsewhere)")
	flags.BoolVar(&f.insecure, "insecure", false,
		"listen on a network without TLS or without a policy: whoever reaches the server can take every lease")
	flags.IntVar(&f.streams, "max-streams", 8192, "how many streams may be open, and acquires wait, at once")
	flags.StringVar(&f.metrics, "metrics", "", "serve metrics for Prometheus at `host:port` (:port is this machine "+
		"only), or keep them in a file that ends in .prom")
	c.AddCommand(a.checkPolicyCommand())
	return c
}

func (a *app) serve(ctx context.Context, f *flags) error {
	ctx, stop := cli.Interruptible(ctx)
	defer stop()
	if f.streams < 1 {
		return cli.Invalid("--max-streams %d: it must be at least 1", f.streams)
	}
	secure, err := f.tls()
	if err != nil {
		return err
	}
	po := &page.Options{}
	if po.Guards, err = guard.Allow(f.guards...); err != nil {
		return err
	}
	if f.sessionKey != "" {
		if po.SessionKey, err = cli.ReadSessionKey(f.sessionKey); err != nil {
			return err
		}
	}
	o := &server.Options{
		Hosts: f.hosts, CallTimeout: a.Timeout, MaxCalls: maxCalls, MaxStreams: f.streams, MaxFile: int64(f.maxFile),
	}
	if f.policy != "" {
		policy, err := readPolicy(f.policy)
		if err != nil {
			return err
		}
		if err := cli.CheckWriters(f.policy); err != nil {
			return cli.Invalid("policy: %v", err)
		}
		o.Access = policy.With(issuers.New(policy.Issuers(), func(err error) { a.failure(err.Error()) }))
	}
	if f.signKey != "" {
		var err error
		if o.SignKey, o.Keys, err = cli.ReadSigner(f.signKey); err != nil {
			return err
		}
	}
	if f.files != "" {
		open, end, err := openFiles(f.files)
		if err != nil {
			return err
		}
		defer end()
		o.Files = open
		if o.Uploads, err = openUploads(f.files); err != nil {
			return err
		}
		defer o.Uploads.Close()
	}
	listener, err := net.Listen("tcp", f.listen)
	if err != nil {
		return cli.Invalid("--listen %s: %v; choose another address", f.listen, err)
	}
	defer listener.Close()
	if err := f.checkExposed(listener.Addr(), secure != nil); err != nil {
		return err
	}
	st, name, err := a.openStore(ctx)
	if err != nil {
		return err
	}
	defer st.Close()
	if err := f.checkFiles(name); err != nil {
		return err
	}
	if o.Ledger, err = a.openLedger(ctx, name); err != nil {
		return err
	}
	counts := newCounts()
	collected := []prometheus.Collector{counts}
	if o.Ledger != nil {
		defer o.Ledger.Close()
		if f.metrics != "" {
			ledger := observe.NewLedger(nil)
			o.Ledger = ledger.Ledger(o.Ledger)
			collected = append(collected, ledger)
		}
	}
	metrics, err := a.ServeMetrics(f.metrics, collected...)
	if err != nil {
		return err
	}
	defer metrics()
	told := a.tell()
	o.Observe = func(e server.Event) {
		counts.observe(e)
		told(e)
	}
	a.listens(listener.Addr(), secure != nil, o, name)
	srv := server.New(st, o)
	po.Access, po.Ledger, po.Store, po.Observe = o.Access, o.Ledger, store.Redact(name), o.Observe
	return a.run(ctx, srv, page.New(srv, st, po), limited(listener, f.streams, secure))
}

// limited bounds the connections to what the server can work on, and adds TLS.
func limited(l net.Listener, streams int, secure *tls.Config) net.Listener {
	l = netutil.LimitListener(l, streams+maxCalls)
	if secure != nil {
		l = tls.NewListener(l, secure)
	}
	return l
}

// run serves h until ctx ends, and then drains the server.
func (a *app) run(ctx context.Context, srv *server.Server, h http.Handler, l net.Listener) error {
	front := &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: log.New(io.Discard, "", 0),
	}
	failed := make(chan error, 1)
	go func() { failed <- front.Serve(l) }()
	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
		fmt.Fprintln(a.Stderr, "croft: stopping; calls under way are answered first")
	}
	srv.Drain()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainWithin)
	defer cancel()
	if front.Shutdown(last) != nil {
		_ = front.Close()
	}
	return err
}

// tls returns the TLS configuration, or nil without a certificate.
func (f *flags) tls() (*tls.Config, error) {
	if (f.cert == "") != (f.key == "") {
		return nil, cli.Invalid("--cert and --key belong together; give both or none")
	}
	if f.cert == "" {
		if f.clientCA != "" {
			return nil, cli.Invalid("--client-ca: client certificates need TLS; add --cert and --key")
		}
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return nil, cli.Invalid("--cert and --key: %v", err)
	}
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"},
	}
	if f.clientCA != "" {
		text, err := os.ReadFile(f.clientCA)
		if err != nil {
			return nil, cli.Invalid("--client-ca: %v", err)
		}
		config.ClientCAs, config.ClientAuth = x509.NewCertPool(), tls.VerifyClientCertIfGiven
		if !config.ClientCAs.AppendCertsFromPEM(text) {
			return nil, cli.Invalid("--client-ca: %s holds no certificate in PEM form", f.clientCA)
		}
	}
	return config, nil
}

// checkExposed refuses to serve a network without TLS and identities.
func (f *flags) checkExposed(addr net.Addr, secure bool) error {
	tcp, ok := addr.(*net.TCPAddr)
	if f.insecure || ok && tcp.IP.IsLoopback() {
		return nil
	}
	var missing []string
	if !secure {
		missing = append(missing, "--cert and --key")
	}
	if f.policy == "" {
		missing = append(missing, "--policy")
	}
	if len(missing) == 0 {
		return nil
	}
	return cli.Invalid("--listen %s: others can reach this address; add %s, or --insecure if a proxy in front of "+
		"the server does this", f.listen, strings.Join(missing, ", "))
}

// readPolicy reads a policy from a file.
func readPolicy(path string) (*access.Policy, error) {
	text, err := fsys.OS{}.ReadFile(fsys.Anywhere(path), access.MaxSize)
	if err != nil {
		return nil, cli.Invalid("policy: %v", err)
	}
	return access.Parse(text)
}

// openStore opens the store to serve. Without a choice of the user it is a
// SQLite file, because that serves many clients better than a directory.
func (a *app) openStore(ctx context.Context) (st store.Store, name string, err error) {
	name, defaulted, err := a.StoreName()
	if err != nil {
		return nil, "", err
	}
	if scheme, _, found := strings.Cut(name, "://"); found && (scheme == "http" || scheme == "https") {
		return nil, "", cli.Invalid("store %s: it is a server itself; name the store behind it", store.Redact(name))
	}
	if defaulted && slices.Contains(backends.In(), "sqlite") {
		file := name + "-server.db"
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return nil, "", cli.Invalid("store: %v; give --store", err)
		}
		path := filepath.ToSlash(file)
		if !strings.HasPrefix(path, "/") {
			path = "/" + path
		}
		name = (&url.URL{Scheme: "sqlite", Path: path}).String()
	}
	ctx, cancel := context.WithTimeout(ctx, 2*a.Timeout)
	defer cancel()
	st, err = cli.OpenWithin(ctx, name)
	return st, name, err
}

// openLedger opens the ledger in the store's place. It is nil if such a store
// keeps none.
func (a *app) openLedger(ctx context.Context, name string) (work.Ledger, error) {
	scheme, _, found := strings.Cut(name, "://")
	if !found || !slices.Contains(work.Schemes(), scheme) {
		return nil, nil
	}
	return a.OpenLedger(ctx, name)
}
