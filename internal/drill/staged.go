package drill

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// RunStaged plays one story in four stages, one after the other, on one key and
// one HTTP service. After each stage it checks what an operator would have
// seen: the metrics of all processes, and the store's record. Otherwise it is
// like Run.
func RunStaged(ctx context.Context, o Options) (*Report, error) {
	return run(ctx, o, (*director).inStages)
}

// staging is the state of a staged drill.
type staging struct {
	stage
	service *service
	meter   *Meter
	played  []Scene

	counted map[string]Metrics // by owner of the meter, as last read
	stopped string             // the owner that is stopped and cannot be asked
	second  tenure.Record      // B's grant, which B then loses
	before  Metrics            // the metrics before this stage
	amiss   bool               // a metric has not moved as it should
}

// chapter is the script of a stage. play reports whether the next stage can
// follow.
type chapter struct {
	name, story string
	play        func(s *staging, ctx context.Context) bool
}

var chapters = []chapter{
	{"expiry", "A is stopped for longer than its lease lasts; B is granted the key", (*staging).expiry},
	{"stale-release", "A wakes up and gives back what is no longer its own", (*staging).staleRelease},
	{"renew-failure", "the store does not answer B any more; C is granted the key", (*staging).renewFailure},
	{"stale-write", "B, which has lost the key, writes to an HTTP service", (*staging).staleWrite},
}

// inStages plays the story. It plays it again, with fresh workers, if the
// machine was too busy for it to prove anything.
func (d *director) inStages(ctx context.Context, report *Report) error {
	cast := map[string]*worker{}
	for _, owner := range []string{"A", "B", "C"} {
		w, err := d.startWorker(ctx, owner)
		if err != nil {
			return err
		}
		cast[owner] = w
	}
	if err := d.checkShared(ctx, cast["A"]); err != nil {
		return err
	}
	report.Processes = len(d.workers)
	var err error
	if report.Began, err = d.o.Store.Now(ctx); err != nil {
		return store.Unknown(err)
	}
	for take := 1; ; take++ {
		busy, err := d.playStages(ctx, take, cast, report)
		if err != nil || !busy || take == takes || ctx.Err() != nil || d.o.wrong(report.Steps()) {
			return err
		}
		d.say("", "this machine was too busy for that to prove anything: once more")
		if cast = d.replace(ctx, cast); cast == nil {
			return nil
		}
	}
}

// playStages plays all stages once. busy asks to play them again.
func (d *director) playStages(
	ctx context.Context, take int, cast map[string]*worker, report *Report,
) (busy bool, err error) {
	name := "staged"
	if take > 1 {
		name += "-" + strconv.Itoa(take)
	}
	s := &staging{stage: stage{director: d, cast: cast}, meter: d.o.Meter(), counted: map[string]Metrics{}}
	s.path, _ = d.fileOf(name)
	s.service, err = d.openService(name, s.path, s.meter)
	defer s.service.close(ctx)
	if err != nil {
		return false, err
	}
	for i, c := range chapters {
		s.Scene = Scene{Name: c.name, Story: c.story, Key: d.keys + name}
		s.before = s.total()
		goesOn := c.play(s, ctx)
		s.Record, s.Now, _ = s.record(ctx)
		s.Metrics = s.total()
		s.played = append(s.played, s.Scene)
		if goesOn {
			continue
		}
		for _, left := range chapters[i+1:] {
			s.Scene = Scene{Name: left.name, Story: left.story, Key: d.keys + name}
			s.step("left-out", "left out", "played", verdict{
				result: NotDone, happened: "rests on " + c.name + ", which was not as it should be",
			})
			s.played = append(s.played, s.Scene)
		}
		break
	}
	report.Scenes = s.played
	return s.busy, nil
}

// count reads all meters that can be read. A stopped process cannot answer. Its
// last values stay, as they do on a graph.
func (s *staging) count(ctx context.Context) *failure {
	own, err := s.meter.Read()
	if err != nil {
		return failureOf(err)
	}
	s.counted["fence"] = own
	for owner, w := range s.cast {
		if owner == s.stopped {
			continue
		}
		r := w.call(ctx, order{Do: doCount})
		if r.Err != nil {
			return r.Err
		}
		s.counted[owner] = r.Metrics
	}
	return nil
}

// total adds up all meters, as last read.
func (s *staging) total() Metrics {
	sum := Metrics{}
	for _, counted := range s.counted {
		sum = sum.add(counted)
	}
	return sum
}

// metric checks that a metric has moved as it should since the stage began.
// Events are counted soon after they happen, not at once. So metric reads again
// until the value is right, or until it can no longer be expected. It does not
// wait if something is wrong already.
func (s *staging) metric(ctx context.Context, step string, want rise, name string, labels ...string) {
	deadline := time.Now()
	if !s.amiss && !s.o.wrong(s.Steps) {
		deadline = deadline.Add(2*s.o.TTL + time.Second)
	}
	for {
		f := s.count(ctx)
		m := moved(s.before, s.total(), name, labels...)
		v := ok("%g → %g", m.From, m.To)
		switch {
		case f != nil:
			v = notDone(f)
		case want.met(m):
		case m.To-m.From > want.by || time.Now().After(deadline) || ctx.Err() != nil:
			v = failed("%g → %g", m.From, m.To)
			if s.busy { // then more may have happened than was planned
				v = tooBusy("%g → %g", m.From, m.To)
			}
			s.amiss = true
		default:
			select {
			case <-ctx.Done():
			case <-time.After(s.o.TTL / 20):
			}
			continue
		}
		s.step("metric-"+step, m.Series, want.String(), v)
		s.Steps[len(s.Steps)-1].Metric = &m
		return
	}
}

// puts lets the present owner write over HTTP, and judges that it worked.
func (s *staging) puts(ctx context.Context, w *worker, text string) verdict {
	r, _, after := s.write(ctx, w, order{Do: doPut, URL: s.service.url, Text: text})
	return written(r, text, after)
}

// fenced checks the metrics of the fence in front of the service. Without the
// fence nobody counts.
func (s *staging) fenced(ctx context.Context, step, outcome string, by float64) {
	if s.o.Unguarded {
		by = 0
	}
	s.metric(ctx, step, rise{by: by}, "croft_guarded_writes_total", `guard="http"`, `outcome="`+outcome+`"`)
}

// expiry: a worker that seems dead is replaced when its time is over.
func (s *staging) expiry(ctx context.Context) bool {
	a, b := s.cast["A"], s.cast["B"]
	r := a.call(ctx, s.acquire(0))
	if !s.step("grant", "A takes the lease and writes", "granted, written", granted(r, tenure.First, tenure.Record{}).
		then(func() verdict { return s.puts(ctx, a, result(1, "A", r.Record.Token)) })) {
		return false
	}
	f := s.count(ctx) // the last chance to ask A
	if f == nil {
		f = s.leave(a, a.pause, fmt.Sprintf("A is stopped (SIGSTOP), for longer than its %s", s.o.TTL))
	}
	s.stopped = "A"
	if !s.step("pause", "A is stopped", "stopped", accepted(reply{Err: f}, "stopped")) {
		return false
	}
	var ok bool
	if s.second, ok = s.succeed(ctx); !ok {
		return false
	}
	if !s.step("newer-write", "B writes", "written", s.puts(ctx, b, result(2, "B", s.second.Token))) {
		return false
	}
	s.say(s.Name, "A's lease is over, B has the key")
	s.metric(ctx, "transfers", rise{by: 1}, "croft_transfers_total", `cause="expired"`)
	s.fenced(ctx, "writes", "admitted", 2)
	return true
}

// staleRelease: A was not dead. Its requests about the key must change nothing.
func (s *staging) staleRelease(ctx context.Context) bool {
	a := s.cast["A"]
	if f := failureOf(a.wake()); f != nil {
		return s.step("wake", "A wakes up", "awake", notDone(f))
	}
	s.stopped = ""
	s.say(s.Name, "A wakes up (SIGCONT) and releases its lease")
	good := s.step("stale-release", "A releases its lease", "refused, B's lease untouched",
		notOwned(a.call(ctx, order{Do: doRelease}), tenure.WhySuperseded).
			then(func() verdict { return s.untouched(ctx, s.second) }))
	good = good && s.step("renewal", "B works on for a while", "renewed by its client", s.renewed(ctx, s.second))
	good = s.step("lease-context", "A's lease, in A's own eyes", "over",
		over(a.call(ctx, s.ends()), "superseded", "expired", "unreachable")) && good
	s.metric(ctx, "not-owned", rise{by: 1}, "croft_operations_total", `operation="release"`, `outcome="not_owned"`)
	s.metric(ctx, "lost", rise{by: 1}, "croft_leases_lost_total")
	s.metric(ctx, "transfers", rise{}, "croft_transfers_total")
	return good
}

// renewFailure: the store stops answering the holder alone. The holder must
// stop in time by itself.
func (s *staging) renewFailure(ctx context.Context) bool {
	b, c := s.cast["B"], s.cast["C"]
	f := b.call(ctx, order{Do: doCut}).Err
	var last tenure.Record
	if f == nil {
		last, _, f = s.record(ctx)
	}
	offset, doubt, err := s.offset(ctx)
	if f == nil {
		f = failureOf(err)
	}
	if f != nil {
		return s.step("cut", "B is cut off from the store", "cut off", notDone(f))
	}
	s.say(s.Name, "B's store stops answering; B goes on working")
	ended := make(chan reply, 1)
	go func() { ended <- b.call(ctx, s.ends()) }()
	r := c.call(ctx, s.acquire(s.await()))
	s.step("renew-failure", "B's lease, in B's own eyes", "over before the deadline",
		inTime(<-ended, last.Deadline.Add(-offset), doubt))
	good := s.step("expiry", "C waits for the key", fmt.Sprintf("granted when B's %s are over", s.o.TTL),
		granted(r, tenure.Expired, last))
	s.say(s.Name, "B's lease is over, C has the key")
	s.metric(ctx, "failures", rise{by: 1, least: true}, "croft_renew_failures_total")
	s.metric(ctx, "lost", rise{by: 1}, "croft_leases_lost_total")
	s.metric(ctx, "transfers", rise{by: 1}, "croft_transfers_total", `cause="expired"`)
	return good
}

// staleWrite: the old holder reaches the service but not the store. Nobody has
// told it anything.
func (s *staging) staleWrite(ctx context.Context) bool {
	b, c := s.cast["B"], s.cast["C"]
	third, _, f := s.record(ctx)
	if f != nil {
		return s.step("newer-write", "C writes", "written", notDone(f))
	}
	if !s.step("newer-write", "C writes", "written", s.puts(ctx, c, result(3, "C", third.Token))) {
		return false
	}
	s.say(s.Name, "C writes; then B, still cut off from the store, does, too")
	r, before, after := s.write(ctx, b, order{Do: doPut, URL: s.service.url, Text: result(4, "B", s.second.Token)})
	s.step("stale-write", "B, still cut off, writes", "409, the service's file stays C's",
		conflict(r, before, after, "C"))
	s.fenced(ctx, "refused", "stale", 1)
	s.step("newer-goes-on", "C renews, writes and releases", "all accepted",
		accepted(c.call(ctx, order{Do: doRenew}), "renewed").
			then(func() verdict { return s.puts(ctx, c, result(5, "C", third.Token)) }).
			then(func() verdict { return accepted(c.call(ctx, order{Do: doRelease}), "released") }))
	return true
}
