package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/observe"
)

// metricsEvery is how often a file of metrics is written: as often as Prometheus commonly looks.
const metricsEvery = 15 * time.Second

// runMetrics are the metrics of one run, served or written until end is called.
type runMetrics struct {
	observe func(croft.Event) // nil if nobody asked for metrics
	end     func()
}

// startMetrics serves metrics at host:port, or keeps them in a file, as where says. A place that cannot be used is an error before anything has begun.
func (a *app) startMetrics(where string) (runMetrics, error) {
	if where == "" {
		return runMetrics{end: func() {}}, nil
	}
	m := observe.New(nil)
	registry := prometheus.NewRegistry()
	registry.MustRegister(m)
	if strings.ContainsRune(where, filepath.Separator) || strings.HasSuffix(where, ".prom") {
		return a.writeMetrics(where, m, registry)
	}
	return a.serveMetrics(where, m, registry)
}

func (a *app) serveMetrics(addr string, m *observe.Metrics, registry *prometheus.Registry) (runMetrics, error) {
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return runMetrics{}, invalid("--metrics %q: give host:port to serve them, like :9464, or a file that ends in .prom", addr)
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return runMetrics{}, invalid("--metrics %s: %v; give another port, or 0 for any", addr, err)
	}
	if strings.HasSuffix(addr, ":0") {
		fmt.Fprintf(a.stderr, "croft: metrics at http://%s/metrics\n", l.Addr())
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second}
	var served sync.WaitGroup
	served.Go(func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			fmt.Fprintf(a.stderr, "croft: metrics are no longer served: %v\n", err)
		}
	})
	return runMetrics{m.Observe, func() {
		_ = server.Close()
		served.Wait()
	}}, nil
}

func (a *app) writeMetrics(path string, m *observe.Metrics, registry *prometheus.Registry) (runMetrics, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return runMetrics{}, invalid("--metrics %s: it is not a file", path)
	}
	if !strings.HasSuffix(path, ".prom") {
		return runMetrics{}, invalid("--metrics %s: the name of the file must end in .prom; the node exporter reads no other", path)
	}
	if err := prometheus.WriteToTextfile(path, registry); err != nil {
		return runMetrics{}, invalid("--metrics %s: %v", path, err)
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
			// The work is more important than that somebody hears of it.
			if err := prometheus.WriteToTextfile(path, registry); err != nil && !said {
				fmt.Fprintf(a.stderr, "croft: metrics are not written: %v\n", err)
				said = true
			}
			if last {
				return
			}
		}
	})
	return runMetrics{m.Observe, func() {
		cancel()
		written.Wait()
	}}, nil
}
