package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	_ "github.com/croft-dev/croft/backend/gcs" // clients open these two by URL
	_ "github.com/croft-dev/croft/backend/s3"
	"github.com/croft-dev/croft/proof/history"
)

// Options of a run. Backend is required. The zero value of each other field
// means its default.
type Options struct {
	Backend Backend
	// For is how long faults are fired; default 10 s.
	For time.Duration
	// Clients and Keys count client processes and keys; default 16 and 10.
	Clients, Keys int
	// Operators counts the processes that take keys from clients by hand;
	// default 2. Negative means none.
	Operators int
	// Seed decides which faults come when, and what clients choose to do. The
	// timing of real processes is beyond it.
	Seed uint64
	// Bare lets clients write past the guards. The run ends as soon as a lost
	// update is seen.
	Bare bool
	// Folder keeps the histories, and a timeline if a law was broken. By
	// default nothing is kept.
	Folder string
	// Progress is called once a second, unless nil.
	Progress func(Progress)

	// until ends the faults early, when it returns true.
	until func(ops []history.Op) bool
}

// Progress is how far a run has come.
type Progress struct {
	Backend           string
	Bare              bool
	Elapsed, For      time.Duration
	Operations        int
	Updates, Refusals int // writes confirmed, and writes refused by guards
	Faults            int
}

// Run starts the servers, lets the clients work under faults, and checks what
// they saw. Broken laws are in the report. An error means that the run itself
// failed: a server was missing (it matches ErrMissing), or a client crashed or
// hung.
func Run(ctx context.Context, o Options) (report *Report, err error) {
	if o.For <= 0 {
		o.For = 10 * time.Second
	}
	if o.Clients <= 0 {
		o.Clients = 16
	}
	if o.Keys <= 0 {
		o.Keys = 10
	}
	if o.Operators == 0 {
		o.Operators = 2
	}
	o.Operators = max(o.Operators, 0)
	if o.Bare && o.until == nil {
		o.until = func(ops []history.Op) bool { return forks(ops) > 0 }
	}
	s := &stand{}
	defer s.end()
	if o.Folder == "" {
		if err := s.try(func() { o.Folder = s.TempDir() }); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(o.Folder, 0o755); err != nil {
		return nil, err
	}
	var g *testbed
	if failed := s.try(func() { g, err = o.Backend.start(ctx, s) }); failed != nil || err != nil {
		return nil, fmt.Errorf("the servers of %s: %w", o.Backend.Name, errors.Join(failed, err))
	}
	for _, setting := range g.env { // for the judge in this process; clients get them too
		name, value, _ := strings.Cut(setting, "=")
		if err := os.Setenv(name, value); err != nil {
			return nil, err
		}
	}
	r := &run{Options: o, testbed: g, reader: history.NewReader(o.Folder)}
	return r.run(ctx)
}

// run is the state of one run.
type run struct {
	Options
	testbed *testbed
	fleet   *fleet
	storm   *storm
	rec     *history.Recorder
	reader  *history.Reader
	clock   drift
}

func (r *run) run(ctx context.Context) (*Report, error) {
	var err error
	if r.rec, err = history.NewRecorder(r.Folder, "run"); err != nil {
		return nil, err
	}
	defer r.rec.Close()
	b := brief{
		Backend: r.Backend.Name, Folder: r.Folder, Clients: r.Clients, Keys: r.Keys,
		TTL: r.Backend.TTL, Seed: r.Seed, Guarded: !r.Bare,
	}
	judge, err := r.openJudge(ctx, b)
	if err != nil {
		return nil, err
	}
	defer judge.dismiss()
	r.fleet, err = launch(b, r.testbed, r.Operators)
	defer r.fleet.scuttle()
	if err != nil {
		return nil, err
	}
	r.storm = newStorm(r.Backend, r.fleet, r.rec, r.Seed)
	if err := r.warmUp(ctx); err != nil {
		return nil, err
	}
	begun := time.Now()
	enough := r.fireFaults(ctx)
	took := time.Since(begun)
	r.clock.look()
	if err := errors.Join(r.storm.calm(), r.fleet.finish(), ctx.Err()); err != nil {
		return nil, r.failed(err)
	}
	if err := judge.ask(ctx); err != nil {
		return nil, r.failed(err)
	}
	ops, err := r.reader.Read()
	if err != nil {
		return nil, err
	}
	report := newReport(r.Options, ops, r.storm.fired, took)
	if r.Bare {
		report.FirstLoss = enough
	}
	report.ClockStepped = r.clock.stepped
	report.NeverFired = r.storm.neverFired()
	report.judge(ops)
	if len(report.Violations) > 0 {
		err = report.draw(r.Folder, ops)
	}
	return report, err
}

// failed says of an error on which backend and with which seed it happened.
func (r *run) failed(err error) error {
	return fmt.Errorf("chaos on %s with seed %d: %w", r.Backend.Name, r.Seed, err)
}

// warmUp waits until every process has begun an operation, but no longer than
// 20 seconds. On a busy machine clients take a while to start, and faults
// before that hit nobody.
func (r *run) warmUp(ctx context.Context) error {
	giveUp := time.Now().Add(20 * time.Second)
	for ; time.Now().Before(giveUp) && ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
		ops, err := r.reader.Read()
		if err != nil {
			return err
		}
		seen := map[string]bool{}
		for _, op := range ops {
			seen[op.Process] = true
		}
		if len(seen) >= r.Clients+r.Operators {
			return nil
		}
	}
	return ctx.Err()
}

// fireFaults fires faults until the time is over, or until r.until says that it
// has seen enough. It returns when r.until said so, 0 if it never did.
func (r *run) fireFaults(ctx context.Context) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, r.For)
	defer cancel()
	begun := time.Now()
	var enough time.Duration
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			r.clock.look()
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if r.Progress == nil && r.until == nil {
				continue
			}
			ops, err := r.reader.Read()
			if err != nil {
				continue // the read after the run reports the error
			}
			p := progressOf(ops)
			p.Backend, p.Bare, p.Elapsed, p.For = r.Backend.Name, r.Bare, time.Since(begun), r.For
			if r.Progress != nil {
				r.Progress(p)
			}
			if r.until != nil && r.until(ops) {
				enough = time.Since(begun)
				cancel()
				return
			}
		}
	}()
	r.storm.rage(ctx)
	<-watched
	return enough
}

func forks(ops []history.Op) (n int) {
	for _, key := range history.Keys(ops) {
		n += history.Forks(key, ops)
	}
	return n
}

func progressOf(ops []history.Op) Progress {
	p := Progress{Operations: len(ops)}
	for _, op := range ops {
		switch {
		case op.Kind == history.Fault:
			p.Faults++
		case op.Kind == history.Write && (op.Outcome == history.OK || op.Outcome == history.Repeated):
			p.Updates++
		case op.Kind == history.Write && op.Outcome == history.Stale:
			p.Refusals++
		}
	}
	return p
}
