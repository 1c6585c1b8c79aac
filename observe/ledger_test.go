package observe

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/guard/gate"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
	"github.com/croft-dev/croft/work/steward"
)

// scrapeOf returns what Prometheus would see of collectors, by name.
func scrapeOf(t *testing.T, all ...prometheus.Collector) map[string]*dto.MetricFamily {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(all...)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]*dto.MetricFamily{}
	for _, f := range families {
		found[f.GetName()] = f
	}
	return found
}

// round makes everything happen to a ledger that its metrics tell. l counts
// into m. In each round one item of queue pages is done, one fails, one dies,
// and one is given back; and so on with their effects.
func round(ctx context.Context, l work.Ledger, m *LedgerMetrics) error {
	for _, payload := range []string{"good", "bad", "hopeless", "early"} {
		if _, err := work.Enqueue(ctx, l, "pages", []byte(payload), nil); err != nil {
			return err
		}
	}
	if err := workOn(ctx, l, m); err != nil {
		return err
	}
	if err := strand(ctx, l); err != nil {
		return err
	}
	return deliverAll(ctx, l, m)
}

// workOn runs a worker on the four items. A handler loses the first.
func workOn(ctx context.Context, l work.Ledger, m *LedgerMetrics) error {
	run, stop := context.WithCancel(ctx)
	defer stop()
	var over atomic.Int32
	observe := func(e work.Event) {
		m.Worker(e)
		switch e.Kind {
		case work.EventCompleted, work.EventFailed, work.EventReleased, work.EventRefused:
			if over.Add(1) == 4 {
				stop()
			}
		}
	}
	err := work.Run(run, l, map[string]work.Handler{"pages": func(_ context.Context, j *work.Job) (work.Result, error) {
		switch string(j.Payload()) {
		case "bad":
			return work.Result{}, work.RetryAfter(errors.New("busy"), time.Hour)
		case "hopeless":
			return work.Result{}, work.Final(errors.New("no such page"))
		case "early":
			return work.Result{}, work.ReleaseFor(errors.New("not yet"), time.Hour)
		}
		return work.Result{Effects: []work.Emission{
			{Name: "index"}, {Name: "mail"}, {Name: "charge", AtMostOnce: true}, {Name: "later"}, {Name: "nobody"},
		}}, nil
	}}, &work.Options{Observe: observe, Drain: time.Second})
	m.Worker(work.Event{Kind: work.EventPaused, Took: 2 * time.Second}) // no machine stops for a test
	m.Worker(work.Event{Kind: work.EventLost, Queue: "pages", Loss: work.Superseded})
	return err
}

// strand leaves items behind as their workers do that die. One of two is
// requeued, the other stays lapsed.
func strand(ctx context.Context, l work.Ledger) error {
	for range 2 {
		if _, err := work.Enqueue(ctx, l, "stranded", []byte("x"), nil); err != nil {
			return err
		}
	}
	secret := tenure.NewSecret()
	items, err := l.Claim(ctx, work.Claim{
		Queues: []string{"stranded"}, Limit: 2, Secret: secret, Owner: "w", Instance: "1", TTL: tenure.MinTTL,
	})
	if err != nil || len(items) < 2 {
		return fmt.Errorf("%d items were claimed: %w", len(items), err)
	}
	time.Sleep(2 * tenure.MinTTL)
	for _, a := range l.Apply(ctx, []work.Request{
		{
			Verb: work.Requeue, ID: items[0].ID, Token: items[0].Record.Token, Secret: tenure.NewSecret(),
			Owner: "reconciler", Instance: "1",
		},
		{Verb: work.Cancel, ID: items[0].ID, Secret: tenure.NewSecret(), Actor: "ann", Note: "over"},
	}) {
		if a.Err != nil {
			return a.Err
		}
	}
	late := l.Apply(ctx, []work.Request{{
		Verb: work.Complete, ID: items[0].ID, Token: items[0].Record.Token, Secret: secret,
	}})
	if !errors.Is(late[0].Err, work.ErrStale) {
		return fmt.Errorf("a late completion: %w", late[0].Err)
	}
	return nil
}

// deliverAll delivers the effects of one round.
func deliverAll(ctx context.Context, l work.Ledger, m *LedgerMetrics) error {
	st := mem.New(nil)
	c := croft.New(st, &croft.Options{})
	defer c.Close()
	run, stop := context.WithCancel(ctx)
	defer stop()
	var over atomic.Int32
	answer := func(err error) steward.Deliverer {
		return steward.Func(func(context.Context, work.Effect) error { return err })
	}
	return steward.RunDispatcher(run, c, l, map[string]steward.Deliverer{
		"index":  answer(nil),
		"mail":   answer(steward.Refused(errors.New("no such address"))),
		"charge": answer(errors.New("no answer")),
		"later":  answer(steward.Busy(errors.New("busy"), time.Hour)),
	}, &steward.DispatchOptions{Timeout: time.Millisecond, CallTimeout: time.Second, Paused: m.Paused, Observe: func(d steward.Delivery) {
		m.Delivery(d)
		if over.Add(1) == 4 {
			stop()
		}
	}})
}

// TestEveryMetricOfALedgerIsSeen: after everything that can happen to items and
// effects, with the right values.
func TestEveryMetricOfALedgerIsSeen(t *testing.T) {
	t.Parallel()
	m := NewLedger(nil)
	if err := round(t.Context(), m.Ledger(mem.NewLedger(nil)), m); err != nil {
		t.Fatal(err)
	}
	found := scrapeOf(t, m)
	for _, want := range []struct {
		name, labels string
		value        float64
	}{
		{"croft_work_items", "queue=pages state=scheduled", 2},
		{"croft_work_items", "queue=pages state=dead", 1},
		{"croft_work_items", "queue=pages state=ready", 0},
		{"croft_work_items", "queue=stranded state=lapsed", 1},
		{"croft_work_items", "queue=stranded state=running", 0},
		{"croft_work_effects", "destination=nobody state=due", 1},
		{"croft_work_effects", "destination=mail state=failed", 1},
		{"croft_work_effects", "destination=later state=scheduled", 1},
		{"croft_work_effects", "destination=charge", 1}, // sending, and unknown when its time is over
		{"croft_work_effects", "destination=index", -1},
		{"croft_work_requests_total", "verb=add outcome=ok", 6},
		{"croft_work_requests_total", "verb=complete outcome=stale", 1},
		{"croft_work_requeues_total", "queue=pages cause=failed", 1},
		{"croft_work_requeues_total", "queue=pages cause=released", 1},
		{"croft_work_requeues_total", "queue=stranded cause=lost", 1},
		{"croft_work_ended_total", "queue=pages state=done", 1},
		{"croft_work_ended_total", "queue=pages state=dead", 1},
		{"croft_work_ended_total", "queue=stranded state=cancelled", 1},
		{"croft_work_wait_seconds", "queue=pages", 4},
		{"croft_work_handler_seconds", "queue=pages outcome=completed", 1},
		{"croft_work_handler_seconds", "queue=pages outcome=failed", 2},
		{"croft_work_handler_seconds", "queue=pages outcome=released", 1},
		{"croft_work_lost_total", "queue=pages loss=superseded", 1},
		{"croft_work_lost_total", "queue=pages loss=expired", 0}, // counted from 0
		{"croft_work_pause_seconds", "", 1},
		{"croft_work_deliveries_total", "destination=index outcome=sent", 1},
		{"croft_work_deliveries_total", "destination=mail outcome=failed", 1},
		{"croft_work_deliveries_total", "destination=charge outcome=unknown", 1},
		{"croft_work_deliveries_total", "destination=later outcome=pending", 1},
		{"croft_work_delivery_seconds", "", 4},
		{"croft_work_destination_paused_seconds_total", "destination=later", 3600},
		{"croft_work_destination_paused_seconds_total", "destination=mail", 0},
		{"croft_work_backlog_failures_total", "", 0},
	} {
		if got := value(found[want.name], strings.Fields(want.labels)...); got != want.value {
			t.Errorf("%s{%s} is %v, want %v", want.name, want.labels, got, want.value)
		}
	}
	if age := value(found["croft_work_heartbeat_age_seconds"], "queue=stranded"); age < (2 * tenure.MinTTL).Seconds() {
		t.Errorf("the heartbeat of the lapsed item is %v s old", age)
	}
	for name := range documented(t) {
		if strings.HasPrefix(name, "croft_work_") && found[name] == nil {
			t.Errorf("%s is documented and was not seen", name)
		}
	}
}

// TestLabelsOfALedgerAreBounded: others choose the names of queues.
func TestLabelsOfALedgerAreBounded(t *testing.T) {
	m := NewLedger(&LedgerOptions{MaxQueues: 3, Queues: []string{"pages"}})
	l := m.Ledger(mem.NewLedger(nil))
	for i := range 50 {
		if _, err := work.Enqueue(t.Context(), l, fmt.Sprintf("flood/%d", i), []byte("x"), nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := work.Enqueue(t.Context(), l, "pages", []byte("x"), nil); err != nil {
		t.Fatal(err)
	}
	found := scrapeOf(t, m)
	ready := found["croft_work_items"]
	if other, own := value(ready, "queue=other", "state=ready"), value(ready, "queue=pages", "state=ready"); other != 48 || own != 1 {
		t.Errorf("%v items of other queues and %v of pages are ready, want 48 and 1", other, own)
	}
	if n := len(found["croft_work_ready_age_seconds"].GetMetric()); n != 4 {
		t.Errorf("%d series for 51 queues, want 3 and one for the others", n)
	}
	l.Apply(t.Context(), []work.Request{{Verb: "made-up", ID: work.NewID()}})
	if n := value(scrapeOf(t, m)["croft_work_requests_total"], "verb=other", "outcome=invalid"); n != 1 {
		t.Errorf("a made-up verb is counted %v times", n)
	}
}

// slowSurveyor takes its time, or fails.
type slowSurveyor struct {
	work.Ledger
	clock *time.Time
	takes time.Duration
	err   error
	reads int
}

func (s *slowSurveyor) Backlog(context.Context, time.Duration) (work.Backlog, error) {
	s.reads++
	*s.clock = s.clock.Add(s.takes)
	return work.Backlog{
		Now: *s.clock, Queues: []work.QueueBacklog{{Queue: "q", Ready: int64(s.reads), Oldest: s.clock.Add(-time.Minute)}},
	}, s.err
}

// TestGaugesCostALedgerLittle: however often somebody scrapes, the ledger is
// read for at most a two-hundredth of the time. What is shown has its age, and
// is not shown for ever.
func TestGaugesCostALedgerLittle(t *testing.T) {
	now := time.Now()
	m := NewLedger(nil)
	m.now = func() time.Time { return now }
	l := &slowSurveyor{Ledger: mem.NewLedger(nil), clock: &now, takes: time.Second}
	m.Ledger(l)
	begun := now
	for now.Sub(begun) < time.Hour {
		scrapeOf(t, m)
		now = now.Add(10 * time.Second)
	}
	if l.reads < 16 || l.reads > 19 {
		t.Errorf("%d readings of a second in an hour, want 17 or 18", l.reads)
	}
	now = now.Add(201 * time.Second)
	scrapeOf(t, m)
	now = now.Add(30 * time.Second)
	found := scrapeOf(t, m)
	if age, oldest := value(found["croft_work_backlog_age_seconds"]), value(found["croft_work_ready_age_seconds"]); age != 30 || oldest != 90 {
		t.Errorf("gauges of %v s ago say that the oldest item waits for %v s, want 30 and 90", age, oldest)
	}
	l.err, l.takes = errors.New("connection refused"), 0
	for range 50 {
		now = now.Add(10 * time.Second)
		found = scrapeOf(t, m)
	}
	if found["croft_work_items"] == nil || value(found["croft_work_backlog_failures_total"]) < 30 {
		t.Errorf("after 500 s of failures: no gauges, want the last reading, for three pauses of 200 s")
	}
	now = now.Add(2 * time.Minute)
	if found = scrapeOf(t, m); found["croft_work_items"] != nil || found["croft_work_backlog_age_seconds"] != nil {
		t.Error("gauges are shown for ever")
	}
}

// TestUnstampedWritesAreToldApart: a proxy that lets writes in without a stamp
// checks nothing.
func TestUnstampedWritesAreToldApart(t *testing.T) {
	m := New(nil)
	m.Gate(gate.Event{Kind: gate.Admitted, Key: "orders/one", Token: 1})
	m.Gate(gate.Event{Kind: gate.Admitted})
	m.Gate(gate.Event{Kind: gate.Admitted})
	writes := scrape(t, m)["croft_guarded_writes_total"]
	if stamped, not := value(writes, "outcome=admitted"), value(writes, "outcome=unstamped"); stamped != 1 || not != 2 {
		t.Errorf("%v admitted and %v unstamped, want 1 and 2", stamped, not)
	}
}
