package observe

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/croft-dev/croft/work"
)

// These bound what the gauges of a ledger cost it. They are read at a scrape,
// but not again within backlogLeast, nor within backlogShare times what the
// last reading took. So one process keeps at most a two-hundredth of a
// connection busy. Gauges that are older than backlogMost, or than three
// readings, are not shown.
const (
	backlogLeast   = 10 * time.Second
	backlogShare   = 200
	backlogMost    = 5 * time.Minute
	backlogTimeout = 5 * time.Second
)

// survey keeps what is open in a ledger, as it was last read. mu is held while
// it is read, so that one reading is under way at a time.
type survey struct {
	stallAfter time.Duration
	now        func() time.Time
	failures   prometheus.Counter

	items, ready, heartbeat, progress, effects, effectAge, age *prometheus.Desc

	mu       sync.Mutex
	surveyor work.Surveyor
	last     work.Backlog
	read     time.Time // when last was read; zero if never
	next     time.Time // when it may be read again
	shown    time.Time // until when it is shown
}

func newSurvey(stallAfter time.Duration) survey {
	gauge := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return survey{
		stallAfter: stallAfter, now: time.Now,
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "croft_work_backlog_failures_total",
			Help: "Readings of what is open in the ledger that failed.",
		}),
		items: gauge("croft_work_items",
			"Items that are not done: ready, scheduled, running, lapsed, stalled, dead.", "queue", "state"),
		ready: gauge("croft_work_ready_age_seconds",
			"How long the item has waited that has been ready longest.", "queue"),
		heartbeat: gauge("croft_work_heartbeat_age_seconds",
			"The time since the oldest heartbeat of a running item.", "queue"),
		progress: gauge("croft_work_progress_age_seconds",
			"The time since the oldest progress, or else claim, of a running item.", "queue"),
		effects: gauge("croft_work_effects",
			"Effects that are not sent: due, scheduled, sending, unknown, failed.", "destination", "state"),
		effectAge: gauge("croft_work_effect_age_seconds",
			"How long the oldest effect has been due, unknown or failed.", "destination", "state"),
		age: gauge("croft_work_backlog_age_seconds",
			"How long ago the gauges of items and effects were read."),
	}
}

// of sets the ledger to read.
func (s *survey) of(l work.Surveyor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.surveyor, s.read, s.next = l, time.Time{}, time.Time{}
}

func (s *survey) describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		s.items, s.ready, s.heartbeat, s.progress, s.effects, s.effectAge, s.age,
	} {
		to <- d
	}
}

// backlog returns the counts of open items and effects, and their age. It reads
// the ledger again if they are too old. ok is false if there are none yet.
func (s *survey) backlog() (open work.Backlog, age time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if s.surveyor == nil {
		return open, 0, false
	}
	if !now.Before(s.next) {
		ctx, cancel := context.WithTimeout(context.Background(), backlogTimeout)
		read, err := s.surveyor.Backlog(ctx, s.stallAfter)
		cancel()
		after := s.now()
		pause := max(backlogLeast, backlogShare*after.Sub(now))
		switch {
		case errors.Is(err, errors.ErrUnsupported):
			s.surveyor = nil
			return open, 0, false
		case err != nil:
			s.failures.Inc()
		default:
			s.last, s.read, s.shown = read, after, after.Add(max(backlogMost, 3*pause))
		}
		now, s.next = after, after.Add(pause)
	}
	if s.read.IsZero() || now.After(s.shown) {
		return open, 0, false
	}
	return s.last, now.Sub(s.read), true
}

// collect shows the open items and effects. It adds up the queues and
// destinations without a label of their own: their counts, and the longest of
// their ages.
func (s *survey) collect(to chan<- prometheus.Metric, queues, destinations *spaces) {
	open, age, ok := s.backlog()
	if !ok {
		return
	}
	gauges := sums{age: age, now: open.Now, of: map[series]float64{}}
	for _, q := range open.Queues {
		name := queues.named(q.Queue)
		gauges.count(s.items, q.Ready, name, "ready")
		gauges.count(s.items, q.Scheduled, name, "scheduled")
		gauges.count(s.items, q.Running-q.Lapsed-q.Stalled, name, "running")
		gauges.count(s.items, q.Lapsed, name, "lapsed")
		gauges.count(s.items, q.Stalled, name, "stalled")
		gauges.count(s.items, q.Dead, name, "dead")
		gauges.since(s.ready, q.Oldest, name, "")
		gauges.since(s.heartbeat, q.Heartbeat, name, "")
		gauges.since(s.progress, q.Progress, name, "")
	}
	for _, d := range open.Destinations {
		name := destinations.named(d.To)
		gauges.count(s.effects, d.Due, name, "due")
		gauges.count(s.effects, d.Pending-d.Due, name, "scheduled")
		gauges.count(s.effects, d.Unknown-d.Orphaned, name, "sending")
		gauges.count(s.effects, d.Orphaned, name, unknownOutcome)
		gauges.count(s.effects, d.Failed, name, "failed")
		gauges.since(s.effectAge, d.OldestDue, name, "due")
		gauges.since(s.effectAge, d.OldestOrphan, name, unknownOutcome)
		gauges.since(s.effectAge, d.OldestFailed, name, "failed")
	}
	for at, value := range gauges.of {
		labels := []string{at.name, at.state}
		if at.state == "" {
			labels = labels[:1]
		}
		to <- prometheus.MustNewConstMetric(at.desc, prometheus.GaugeValue, value, labels...)
	}
	to <- prometheus.MustNewConstMetric(s.age, prometheus.GaugeValue, age.Seconds())
}

// sums adds up gauges by their labels.
type sums struct {
	now time.Time     // on the ledger's clock, when it was read
	age time.Duration // since then
	of  map[series]float64
}

type series struct {
	desc        *prometheus.Desc
	name, state string
}

func (s *sums) count(d *prometheus.Desc, n int64, name, state string) {
	s.of[series{d, name, state}] += float64(max(n, 0))
}

// since shows the time since at. A queue that has nothing so old shows 0: its
// series must not end with its last value.
func (s *sums) since(d *prometheus.Desc, at time.Time, name, state string) {
	key, age := series{d, name, state}, 0.0
	if !at.IsZero() {
		age = max(s.now.Sub(at)+s.age, 0).Seconds()
	}
	s.of[key] = max(s.of[key], age)
}
