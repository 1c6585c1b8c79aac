package servecmd

import (
	"errors"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/croft-dev/croft/server"
	"github.com/croft-dev/croft/store"
)

// counts are the metrics of a server. It is a prometheus.Collector.
type counts struct {
	answers *prometheus.HistogramVec
	calls   *prometheus.HistogramVec
	batches prometheus.Histogram
	acts    *prometheus.CounterVec
}

// seconds are the bounds of durations.
var seconds = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 60, 600}

func newCounts() *counts {
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: seconds}, labels)
	}
	return &counts{
		answers: histogram("croft_server_answer_seconds",
			"How long answers took, by route and by the code of a refusal; streams until their end.", "route", "code"),
		calls: histogram("croft_server_store_call_seconds",
			"How long calls of the store took, by outcome: answered, unknown.", "outcome"),
		batches: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "croft_server_batch_requests", Help: "How many requests went to the store in one call.",
			Buckets: []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024},
		}),
		acts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "croft_server_acts_total", Help: "Acts by hand, by act and result: done, refused, unknown.",
		}, []string{"act", "result"}),
	}
}

// Describe describes all metrics.
func (c *counts) Describe(to chan<- *prometheus.Desc) {
	for _, each := range []prometheus.Collector{c.answers, c.calls, c.batches, c.acts} {
		each.Describe(to)
	}
}

// Collect collects all metrics.
func (c *counts) Collect(to chan<- prometheus.Metric) {
	for _, each := range []prometheus.Collector{c.answers, c.calls, c.batches, c.acts} {
		each.Collect(to)
	}
}

func (c *counts) observe(e server.Event) {
	switch e.Kind {
	case server.Answered:
		code := e.Code
		if code == "" {
			code = "ok"
		}
		_, route, _ := strings.Cut(e.Route, " ") // the pattern is "METHOD PATH", or "/" for all others
		if route == "" {
			route = "other"
		}
		c.answers.WithLabelValues(route, code).Observe(e.Took.Seconds())
	case server.Called:
		outcome := "answered"
		if e.Err != nil {
			outcome = "unknown"
		}
		c.calls.WithLabelValues(outcome).Observe(e.Took.Seconds())
		c.batches.Observe(float64(e.Requests))
	case server.Acted:
		result := "done"
		switch {
		case errors.Is(e.Err, store.ErrUnknown):
			result = "unknown"
		case e.Err != nil:
			result = "refused"
		}
		c.acts.WithLabelValues(string(e.Act), result).Inc()
	}
}
