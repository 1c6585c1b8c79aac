package observe

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/fence"
)

// Options shape [Metrics]. A nil *Options and the zero Options mean the
// defaults.
type Options struct {
	// MaxNamespaces bounds how many namespaces have labels of their own. Later
	// ones share the label "other". Default: 100.
	MaxNamespaces int
	// Namespaces lists namespaces that always have labels of their own. They
	// count towards MaxNamespaces. Default: none.
	Namespaces []string
}

// Metrics counts what clients, guards and gates do. It is a
// [prometheus.Collector]. Register it once; it may serve any number of clients.
// Its methods are safe for concurrent use.
type Metrics struct {
	wait       *prometheus.HistogramVec
	held       *prometheus.GaugeVec
	heldFor    *prometheus.HistogramVec
	margin     *prometheus.HistogramVec
	failures   *prometheus.CounterVec
	transfers  *prometheus.CounterVec
	lost       *prometheus.CounterVec
	operations *prometheus.CounterVec
	calls      *prometheus.HistogramVec
	unknown    *prometheus.CounterVec
	resolved   *prometheus.CounterVec
	writes     *prometheus.CounterVec
	observed   *prometheus.CounterVec
	raises     *prometheus.CounterVec
	unwatched  *prometheus.CounterVec
	answers    *prometheus.HistogramVec
	unanswered *prometheus.CounterVec
	unsure     *prometheus.CounterVec
	pauses     prometheus.Histogram
	gates      *prometheus.Desc
	idle       *prometheus.Desc

	now      func() time.Time
	spaces   spaces
	expected sync.Map // the namespaces and guards whose counters have begun at 0

	mu     sync.Mutex
	leases map[lease]*term      // the leases that are held
	gated  bool                 // whether a gate has sent an event
	taken  map[string]bool      // the resources that gates have
	closed map[string]time.Time // the closed resources, and until when
}

// term records the times of the work under a lease.
type term struct {
	since    time.Time
	progress time.Time // its last progress; zero if it never reported any
	until    time.Time // when it must be over unless it is renewed
}

// lease identifies a lease.
type lease struct {
	key   string
	token fence.Token
}

// The bounds of histograms. Waits and calls last from under a millisecond to
// minutes. Margins are parts of the TTL.
var (
	seconds = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	parts   = []float64{.05, .1, .2, .3, .4, .5, .55, .6, .65, .7, .8, .9}
	terms   = []float64{.1, 1, 10, 60, 300, 900, 3600, 4 * 3600, 24 * 3600}
)

// New makes metrics in which nothing is counted yet.
func New(o *Options) *Metrics {
	most := 100
	if o != nil && o.MaxNamespaces > 0 {
		most = o.MaxNamespaces
	}
	m := &Metrics{
		now: time.Now, leases: map[lease]*term{}, taken: map[string]bool{}, closed: map[string]time.Time{},
		spaces: spaces{most: most},
	}
	if o != nil {
		for _, space := range o.Namespaces {
			m.spaces.named(space)
		}
	}
	m.wait = histogram("croft_lease_wait_seconds",
		"How long acquires took until they were granted the key, or told that it is not their turn.",
		seconds, "namespace", "outcome")
	m.held = prometheus.NewGaugeVec(
		prometheus.GaugeOpts{Name: "croft_leases_held", Help: "Leases held now."},
		[]string{"namespace"})
	m.heldFor = histogram("croft_lease_held_seconds",
		"How long leases were held that have been released.",
		terms, "namespace", "result")
	m.margin = histogram("croft_renew_margin_ratio",
		"How much of the TTL was left when a renewal was confirmed.",
		parts, "namespace")
	m.failures = counter("croft_renew_failures_total",
		"Renewal intervals that ended without a confirmation, by kind: unreachable, timeout.",
		"namespace", "kind")
	m.transfers = counter("croft_transfers_total",
		"Terms begun, by how the term before ended.",
		"namespace", "cause")
	m.lost = counter("croft_leases_lost_total",
		"Leases that ended otherwise than by release.",
		"namespace", "loss")
	m.operations = counter("croft_operations_total",
		"Requests the store has answered, or not: outcome unknown.",
		"namespace", "operation", "outcome")
	m.calls = histogram("croft_store_call_seconds",
		"How long calls of the store took. One call may carry many requests.",
		seconds, "operation", "outcome")
	m.unknown = counter("croft_unknown_outcomes_total",
		"Requests whose outcome was not known.",
		"namespace", "operation")
	m.resolved = counter("croft_resolved_outcomes_total",
		"Unknown outcomes that became known.",
		"namespace", "operation", "outcome")
	m.writes = counter("croft_guarded_writes_total",
		"Writes at guarded resources, admitted or refused.",
		"namespace", "guard", "outcome")
	m.observed = counter("croft_observed_refusals_total",
		"Writes that would have been refused, and were let in because their guard only observes.",
		"namespace", "guard", "outcome")
	m.raises = counter("croft_fence_raises_total",
		"Fences raised at guarded resources, or not.",
		"namespace", "guard", "outcome")
	m.unwatched = counter("croft_watch_failures_total",
		"Watches of a key that broke or could not be had: it is polled instead.",
		"namespace")
	m.answers = histogram("croft_http_answer_seconds",
		"How long writes through a proxy or gate took from being let in until they were answered in full.",
		seconds, "status")
	m.unsure = counter("croft_http_unsure_total",
		"Writes that a proxy admitted by the mark alone, or refused, because the store did not say who the owner was.",
		"namespace", "decision")
	m.unanswered = counter("croft_http_unanswered_total",
		"Writes that a proxy let in and could not send, or sent without learning their outcome.",
		"namespace", "outcome")
	m.pauses = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "croft_pause_seconds", Buckets: pauseSeconds,
		Help: "How late the client's timer was, if that was a tenth of a second or more.",
	})
	m.gates = prometheus.NewDesc("croft_http_resources",
		"Resources that the proxy has now, and those that it keeps closed.",
		[]string{"state"}, nil)
	m.idle = prometheus.NewDesc("croft_progress_age_seconds",
		"How long ago the work that has been idle for longest last got somewhere. Only of leases whose work reports.",
		[]string{"namespace"}, nil)
	return m
}

func histogram(name, help string, bounds []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: bounds}, labels)
}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

// collectors returns the metrics that keep their own values.
func (m *Metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		m.wait, m.held, m.heldFor, m.margin, m.failures, m.transfers, m.lost,
		m.operations, m.calls, m.unknown, m.resolved, m.unwatched,
		m.writes, m.observed, m.raises, m.answers, m.unanswered, m.unsure, m.pauses,
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	for _, c := range m.collectors() {
		c.Describe(to)
	}
	to <- m.idle
	to <- m.gates
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	m.sweep()
	for _, c := range m.collectors() {
		c.Collect(to)
	}
	if taken, closed, gated := m.resources(); gated {
		to <- prometheus.MustNewConstMetric(m.gates, prometheus.GaugeValue, float64(taken), "taken")
		to <- prometheus.MustNewConstMetric(m.gates, prometheus.GaugeValue, float64(closed), "closed")
	}
	now := m.now()
	longest := map[string]time.Duration{}
	m.mu.Lock()
	for l, w := range m.leases {
		if !w.progress.IsZero() {
			space := m.spaces.of(l.key)
			longest[space] = max(longest[space], now.Sub(w.progress))
		}
	}
	m.mu.Unlock()
	for space, d := range longest {
		to <- prometheus.MustNewConstMetric(m.idle, prometheus.GaugeValue, d.Seconds(), space)
	}
}

// Observe takes one event. Set croft.Options.Observe to it.
func (m *Metrics) Observe(e croft.Event) {
	space := m.spaces.of(e.Key)
	verb := string(e.Verb)
	switch e.Kind {
	case croft.EventCall:
		m.operations.WithLabelValues(m.spaces.named(e.Namespace), verb, string(e.Outcome)).Add(float64(e.Count))
		m.calls.WithLabelValues(verb, string(e.Outcome)).Observe(e.Took.Seconds())
	case croft.EventAcquired:
		m.wait.WithLabelValues(space, "acquired").Observe(e.Wait.Seconds())
		m.transfers.WithLabelValues(space, string(e.Cause)).Inc()
		m.begin(e)
	case croft.EventResumed:
		m.transfers.WithLabelValues(space, "resumed").Inc()
		m.begin(e)
	case croft.EventRefused:
		m.wait.WithLabelValues(space, "refused").Observe(e.Wait.Seconds())
	case croft.EventRenewed:
		if e.TTL > 0 {
			m.margin.WithLabelValues(space).Observe(e.Margin.Seconds() / e.TTL.Seconds())
		}
		m.renewed(e)
		m.progressed(e, e.Idle)
	case croft.EventReported:
		m.progressed(e, 0)
	case croft.EventRenewFailed:
		m.failures.WithLabelValues(space, failure(e.Err)).Inc()
	case croft.EventReleased:
		result := "success"
		if e.Failed {
			result = "failure"
		}
		m.heldFor.WithLabelValues(space, result).Observe(e.Held.Seconds())
		m.end(e)
	case croft.EventLost:
		m.lost.WithLabelValues(space, string(e.Loss)).Inc()
		m.end(e)
	case croft.EventReleaseLeft:
		m.end(e)
	case croft.EventRaised, croft.EventRaiseRefused:
		m.raises.WithLabelValues(space, kindOf(e.Target), outcomeOf(e.Err)).Inc()
		m.expect(space, kindOf(e.Target))
	case croft.EventUnknown:
		m.unknown.WithLabelValues(space, verb).Inc()
	case croft.EventResolved:
		m.resolved.WithLabelValues(space, verb, string(e.Outcome)).Inc()
	case croft.EventUnwatched:
		m.unwatched.WithLabelValues(space).Inc()
	case croft.EventPaused:
		m.pauses.Observe(e.Took.Seconds())
	}
}

// begin counts a lease as held.
func (m *Metrics) begin(e croft.Event) {
	m.expectLosses(m.spaces.of(e.Key))
	m.mu.Lock()
	defer m.mu.Unlock()
	l, now := lease{e.Key, e.Token}, m.now()
	if m.leases[l] == nil {
		m.held.WithLabelValues(m.spaces.of(e.Key)).Inc()
		m.leases[l] = &term{since: now}
	}
	m.leases[l].until = now.Add(2 * e.TTL)
}

// renewed counts a lease as held for longer.
func (m *Metrics) renewed(e croft.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if w := m.leases[lease{e.Key, e.Token}]; w != nil {
		w.until = m.now().Add(2 * e.TTL)
	}
}

// sweep forgets leases that must be over. If a process is stopped at the wrong
// moment, the beginning of a lease may be told after its loss.
func (m *Metrics) sweep() {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	for l, w := range m.leases {
		if now.After(w.until) {
			m.held.WithLabelValues(m.spaces.of(l.key)).Dec()
			delete(m.leases, l)
		}
	}
}

// end counts a lease as no longer held. A lease may end more than once: it is
// lost, and then released.
func (m *Metrics) end(e croft.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := lease{e.Key, e.Token}
	if m.leases[l] != nil {
		m.held.WithLabelValues(m.spaces.of(e.Key)).Dec()
		delete(m.leases, l)
	}
}

// progressed notes that the work made progress so long ago. Progress before the
// lease, within the precision of a second, is none: then the work has never
// reported.
func (m *Metrics) progressed(e croft.Event, ago time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.leases[lease{e.Key, e.Token}]
	if w == nil {
		return
	}
	at := m.now().Add(-ago)
	if at.After(w.progress) && (ago == 0 || at.After(w.since.Add(time.Second))) {
		w.progress = at
	}
}
