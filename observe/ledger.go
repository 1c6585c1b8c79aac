package observe

import (
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/work"
	"github.com/croft-dev/croft/work/steward"
)

// LedgerOptions shape [LedgerMetrics]. A nil *LedgerOptions and the zero
// LedgerOptions mean the defaults.
type LedgerOptions struct {
	// MaxQueues bounds how many queues have labels of their own. Later ones
	// share the label "other". Others may choose the names. The same bound
	// holds for the destinations of effects. Default: 100.
	MaxQueues int
	// Queues and Destinations always have labels of their own. They count
	// towards MaxQueues. Default: none.
	Queues, Destinations []string
	// StallAfter is how long a running item may be without progress before it
	// counts as stalled. Default: 15 minutes.
	StallAfter time.Duration
}

// LedgerMetrics counts what happens in a ledger of work items, and shows what
// is open there. It is a [prometheus.Collector]. Its methods are safe for
// concurrent use.
//
//	metrics := observe.NewLedger(nil)
//	prometheus.MustRegister(metrics)
//	ledger = metrics.Ledger(ledger)
//	err := work.Run(ctx, ledger, handlers, &work.Options{
//		Observe: metrics.Worker,
//	})
type LedgerMetrics struct {
	requests *prometheus.CounterVec
	calls    *prometheus.HistogramVec
	requeues *prometheus.CounterVec
	ended    *prometheus.CounterVec

	waits    *prometheus.HistogramVec
	handlers *prometheus.HistogramVec
	lost     *prometheus.CounterVec
	pauses   prometheus.Histogram

	deliveries *prometheus.CounterVec
	sending    *prometheus.HistogramVec
	paused     *prometheus.CounterVec

	survey
	queues, destinations spaces
	expected             sync.Map // the queues and destinations whose counters have begun at 0
}

// pauseSeconds are the bounds of pauses: from a hiccup to a machine that slept.
var pauseSeconds = []float64{.25, .5, 1, 2.5, 5, 10, 30, 60, 300, 3600}

// handlerSeconds are the bounds of the times that items take.
var handlerSeconds = []float64{.01, .05, .1, .5, 1, 5, 10, 60, 300, 900, 3600, 4 * 3600}

// NewLedger makes metrics in which nothing is counted yet.
func NewLedger(o *LedgerOptions) *LedgerMetrics {
	var f LedgerOptions
	if o != nil {
		f = *o
	}
	if f.MaxQueues <= 0 {
		f.MaxQueues = 100
	}
	if f.StallAfter <= 0 {
		f.StallAfter = 15 * time.Minute
	}
	m := &LedgerMetrics{
		queues: spaces{most: f.MaxQueues}, destinations: spaces{most: f.MaxQueues}, survey: newSurvey(f.StallAfter),
	}
	m.requests = counter("croft_work_requests_total",
		"Requests that the ledger has answered, or not: outcome unknown.",
		"verb", "outcome")
	m.calls = histogram("croft_work_call_seconds",
		"How long calls of the ledger took. One call may carry many requests.",
		seconds, "call", "outcome")
	m.requeues = counter("croft_work_requeues_total",
		"Items that wait again, by cause: failed, released, lost, reassigned, replayed.",
		"queue", "cause")
	m.ended = counter("croft_work_ended_total",
		"Items that are done, dead or cancelled.",
		"queue", "state")
	m.waits = histogram("croft_work_wait_seconds",
		"How long items had been ready when a worker claimed them.",
		seconds, "queue")
	m.handlers = histogram("croft_work_handler_seconds",
		"How long attempts took, until the ledger had their outcome: completed, failed, released.",
		handlerSeconds, "queue", "outcome")
	m.lost = counter("croft_work_lost_total",
		"Attempts that were told to stop, by reason.",
		"queue", "loss")
	m.pauses = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "croft_work_pause_seconds", Buckets: pauseSeconds,
		Help: "How late the worker's timer was, if that was a tenth of a second or more.",
	})
	m.deliveries = counter("croft_work_deliveries_total",
		"Deliveries of effects, by outcome: sent, pending (tried again), failed, unknown, or unsettled in the ledger.",
		"destination", "outcome")
	m.sending = histogram("croft_work_delivery_seconds",
		"How long deliveries of effects took.",
		seconds, "destination")
	m.paused = counter("croft_work_destination_paused_seconds_total",
		"For how long deliveries to a destination were paused, because it failed or asked for it.",
		"destination")
	for _, queue := range f.Queues {
		m.expectQueue(m.queues.named(queue))
	}
	for _, to := range f.Destinations {
		m.expectDestination(m.destinations.named(to))
	}
	return m
}

// collectors returns the metrics that keep their own values.
func (m *LedgerMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		m.requests, m.calls, m.requeues, m.ended, m.waits, m.handlers, m.lost, m.pauses, m.deliveries, m.sending,
		m.paused,
		m.failures,
	}
}

// Describe implements prometheus.Collector.
func (m *LedgerMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, c := range m.collectors() {
		c.Describe(to)
	}
	m.describe(to)
}

// Collect implements prometheus.Collector.
func (m *LedgerMetrics) Collect(to chan<- prometheus.Metric) {
	m.collect(to, &m.queues, &m.destinations)
	for _, c := range m.collectors() {
		c.Collect(to)
	}
}

// Worker takes one event of a worker. Set work.Options.Observe to it.
func (m *LedgerMetrics) Worker(e work.Event) {
	if e.Kind == work.EventPaused {
		m.pauses.Observe(e.Took.Seconds())
		return
	}
	if e.Queue == "" {
		return
	}
	queue := m.queues.named(e.Queue)
	m.expectQueue(queue)
	switch e.Kind {
	case work.EventStarted:
		m.waits.WithLabelValues(queue).Observe(max(e.Waited, 0).Seconds())
	case work.EventCompleted, work.EventFailed, work.EventReleased:
		m.handlers.WithLabelValues(queue, string(e.Kind)).Observe(e.Took.Seconds())
	case work.EventLost:
		m.lost.WithLabelValues(queue, string(e.Loss)).Inc()
	}
}

// Delivery takes one delivery. Set steward.DispatchOptions.Observe to it.
func (m *LedgerMetrics) Delivery(d steward.Delivery) {
	to := m.destinations.named(d.Effect.To)
	m.expectDestination(to)
	outcome := string(d.State)
	if d.Refused != nil {
		outcome = unsettled
	}
	m.deliveries.WithLabelValues(to, outcome).Inc()
	m.sending.WithLabelValues(to).Observe(d.Took.Seconds())
}

// Paused takes one pause of a destination. Set steward.DispatchOptions.Paused
// to it.
func (m *LedgerMetrics) Paused(p steward.Pause) {
	to := m.destinations.named(p.To)
	m.expectDestination(to)
	m.paused.WithLabelValues(to).Add(max(p.For, 0).Seconds())
}

// unsettled is the outcome of a delivery that the ledger does not count.
const unsettled = "unsettled"

// The causes for which an item waits again.
var causes = map[work.Verb]string{
	work.Fail: "failed", work.Release: "released", work.Requeue: "lost",
	work.Reassign: "reassigned", work.Replay: "replayed",
}

// expectQueue makes the counters of a queue begin at 0.
func (m *LedgerMetrics) expectQueue(queue string) {
	if _, done := m.expected.LoadOrStore([2]string{"queue", queue}, true); done {
		return
	}
	for _, cause := range causes {
		m.requeues.WithLabelValues(queue, cause)
	}
	for _, state := range []work.State{work.Done, work.Dead, work.Cancelled} {
		m.ended.WithLabelValues(queue, string(state))
	}
	for _, loss := range []work.Loss{work.Superseded, work.Expired, work.Stalled, work.Drained} {
		m.lost.WithLabelValues(queue, string(loss))
	}
}

// expectDestination makes the counters of a destination begin at 0.
func (m *LedgerMetrics) expectDestination(to string) {
	if _, done := m.expected.LoadOrStore([2]string{"destination", to}, true); done {
		return
	}
	for _, state := range work.EffectStates {
		m.deliveries.WithLabelValues(to, string(state))
	}
	m.deliveries.WithLabelValues(to, unsettled)
	m.paused.WithLabelValues(to)
}

// answered counts one request and the ledger's answer.
func (m *LedgerMetrics) answered(req work.Request, a work.Answer) {
	m.requests.WithLabelValues(verbOf(req.Verb), answerOf(a)).Inc()
	if a.Err != nil || a.Item.Queue == "" {
		return
	}
	queue := m.queues.named(a.Item.Queue)
	m.expectQueue(queue)
	switch {
	case a.Repeated && req.Verb != work.Complete: // counted before
	case a.Item.State == work.Waiting && causes[req.Verb] != "":
		m.requeues.WithLabelValues(queue, causes[req.Verb]).Inc()
	case a.Item.State == work.Done && req.Verb == work.Complete,
		a.Item.State == work.Dead && (req.Verb == work.Fail || req.Verb == work.Requeue),
		a.Item.State == work.Cancelled && req.Verb == work.Cancel:
		m.ended.WithLabelValues(queue, string(a.Item.State)).Inc()
	}
}

// verbOf returns the label of a verb. A request may name any.
func verbOf(v work.Verb) string {
	for _, known := range work.Verbs {
		if v == known {
			return string(v)
		}
	}
	return "other"
}

// answerOf returns the label of the ledger's answer to a request.
func answerOf(a work.Answer) string {
	switch {
	case a.Err == nil && a.Repeated:
		return "repeated"
	case a.Err == nil:
		return "ok"
	}
	for _, refusal := range []struct {
		err  error
		name string
	}{
		{fence.ErrStale, "stale"},
		{fence.ErrCollision, "collision"},
		{work.ErrState, "state"},
		{work.ErrNotFound, "not_found"},
		{work.ErrConflict, "conflict"},
		{work.ErrInvalid, "invalid"},
	} {
		if errors.Is(a.Err, refusal.err) {
			return refusal.name
		}
	}
	return unknownOutcome
}

// unknownOutcome is the label of a call or request without an answer.
const unknownOutcome = "unknown"
