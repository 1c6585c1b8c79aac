package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"golang.org/x/net/netutil"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/observe"
)

// metricsEvery is how often a file of metrics is written. Prometheus commonly
// scrapes as often.
const metricsEvery = 15 * time.Second

// metricsConnections bounds the open connections to the metrics server.
const metricsConnections = 16

// Metrics are those of one process. One goroutine serves them or writes them to
// a file. end stops it and waits for it.
type Metrics struct {
	Metrics *observe.Metrics // nil without --metrics
	Tally   *Tally           // nil without --metrics
	End     func()
}

// Observe returns the client's observer, or nil without metrics.
func (m Metrics) Observe() func(croft.Event) {
	if m.Metrics == nil {
		return nil
	}
	return m.Metrics.Observe
}

// StartMetrics serves metrics at host:port or writes them to a file, as where
// says. It fails if where cannot be used, before the command has begun its
// work. The given namespaces get labels of their own in any case.
func (a *App) StartMetrics(where string, namespaces ...string) (Metrics, error) {
	if where == "" {
		return Metrics{End: func() {}}, nil
	}
	m := observe.New(&observe.Options{Namespaces: namespaces})
	registry := prometheus.NewRegistry()
	registry.MustRegister(m)
	counted := &Tally{m: m}
	source := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		counted.count()
		return registry.Gather()
	})
	end, err := a.showMetrics(where, source)
	return Metrics{m, counted, end}, err
}

// ServeMetrics is StartMetrics for a command with metrics of its own.
func (a *App) ServeMetrics(where string, own ...prometheus.Collector) (end func(), err error) {
	if where == "" {
		return func() {}, nil
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(own...)
	return a.showMetrics(where, registry)
}

// showMetrics serves metrics or writes them to a file, as where says.
func (a *App) showMetrics(where string, source prometheus.Gatherer) (end func(), err error) {
	if strings.ContainsRune(where, filepath.Separator) || strings.HasSuffix(where, ".prom") {
		return a.writeMetrics(where, source)
	}
	return a.serveMetrics(where, source)
}

func (a *App) serveMetrics(addr string, source prometheus.Gatherer) (end func(), err error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil,
			Invalid("--metrics %q: give host:port to serve them, like :9464, or a file that ends in .prom", addr)
	}
	// Other machines learn namespaces and rates only if an operator asks for
	// it.
	if host == "" {
		addr = net.JoinHostPort("127.0.0.1", port)
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, Invalid("--metrics %s: %v; give another port, or 0 for any", addr, err)
	}
	if strings.HasSuffix(addr, ":0") {
		fmt.Fprintf(a.Stderr, "croft: metrics at http://%s/metrics\n", l.Addr())
	}
	server := metricsServer(source)
	var served sync.WaitGroup
	served.Go(func() {
		if err := serveFew(server, l); !errors.Is(err, http.ErrServerClosed) {
			fmt.Fprintf(a.Stderr, "croft: metrics are no longer served: %v\n", err)
		}
	})
	return func() {
		_ = server.Close()
		served.Wait()
	}, nil
}

func metricsServer(source prometheus.Gatherer) *http.Server {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(source, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	server := &http.Server{
		Handler: mux, ReadTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second,
		MaxHeaderBytes: 16 << 10,
	}
	server.SetKeepAlivesEnabled(false) // other clients wait for the connection
	return server
}

// serveFew serves with a bound on open connections. Each connection uses a file
// descriptor, and the store needs some, too. The next connection waits until
// one is closed.
func serveFew(server *http.Server, l net.Listener) error {
	return server.Serve(netutil.LimitListener(l, metricsConnections))
}

func (a *App) writeMetrics(path string, source prometheus.Gatherer) (end func(), err error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, Invalid("--metrics %s: it is not a file", path)
	}
	if !strings.HasSuffix(path, ".prom") {
		return nil,
			Invalid("--metrics %s: the name of the file must end in .prom; the node exporter reads no other", path)
	}
	write := func() error {
		return ReplaceFile(path, func(w io.Writer) error { return writeText(w, source) })
	}
	if err := write(); err != nil {
		return nil, Invalid("--metrics %s: %v", path, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var written sync.WaitGroup
	written.Go(func() {
		tick := time.NewTicker(metricsEvery)
		defer tick.Stop()
		for said := false; ; {
			last := false
			select {
			case <-tick.C:
			case <-ctx.Done():
				last = true
			}
			// A failure to write metrics does not stop the work. Say it once.
			if err := write(); err != nil && !said {
				fmt.Fprintf(a.Stderr, "croft: metrics are not written: %v\n", err)
				said = true
			}
			if last {
				return
			}
		}
	})
	return func() {
		cancel()
		written.Wait()
	}, nil
}

// writeText writes metrics in the text format that the node exporter reads.
func writeText(w io.Writer, source prometheus.Gatherer) error {
	families, err := source.Gather()
	if err != nil {
		return err
	}
	for _, family := range families {
		if _, err := expfmt.MetricFamilyToText(w, family); err != nil {
			return err
		}
	}
	return nil
}
