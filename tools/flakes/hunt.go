package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// progressEvery is how often the hunter says how far it is.
const progressEvery = 30 * time.Second

// A hunter builds test binaries and runs them under load.
type hunter struct {
	*options
	flags      []string // for go test -c
	out        io.Writer
	top        string // the folder of go.work
	tmp        string // removed at the end
	folder     string // keeps the output of failed runs; made at the first failure
	test2json  string
	neighbours neighbours
	tally      *tally
	runs       int
}

// A track is a package on the hunt: how often it ran, and for how long.
type track struct {
	*pkg
	begun    int
	ended    int
	spent    time.Duration
	shortest time.Duration
	since    time.Time // start of the run in flight
	running  bool
	empty    bool // no test matches
}

func newHunter(o *options, out io.Writer) (*hunter, error) {
	top, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	// Ask only once: `go tool` takes a while to find it.
	tool, err := exec.Command("go", "tool", "-n", "test2json").Output()
	if err != nil {
		return nil, fmt.Errorf("go tool -n test2json: %w", err)
	}
	keep, err := filepath.Abs(o.keep)
	if err != nil {
		return nil, err
	}
	// A short name: the paths of Unix sockets must fit into 108 bytes.
	tmp, err := os.MkdirTemp("", "fl")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return nil, errors.Join(err, os.Remove(tmp))
	}
	return &hunter{
		options: o, flags: o.build, out: out, top: top, tmp: tmp, test2json: strings.TrimSpace(string(tool)),
		folder: filepath.Join(keep, time.Now().Format("2006-01-02-150405")), tally: newTally(o),
	}, nil
}

// cleanUp stops the load and removes the temporary folder.
func (h *hunter) cleanUp() error {
	return errors.Join(h.neighbours.end(), removeAll(h.tmp))
}

// hunt runs the packages until the time is up or each was run often enough.
func (h *hunter) hunt(ctx context.Context, pkgs []*pkg) error {
	tracks := make([]*track, len(pkgs))
	for i, p := range pkgs {
		tracks[i] = &track{pkg: p}
		h.tally.know(p)
	}
	if err := h.load(); err != nil {
		return err
	}
	var deadline time.Time
	if h.time > 0 {
		deadline = time.Now().Add(h.time)
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline)
		defer cancel()
	}
	h.tally.began = time.Now()
	defer func() { h.tally.took = time.Since(h.tally.began) }()

	type ended struct {
		*run
		*track
	}
	results := make(chan ended)
	running := 0
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	var failed error
	for {
		for running < h.jobs && ctx.Err() == nil && failed == nil {
			t := choose(tracks, h.count, deadline)
			if t == nil {
				break
			}
			r := h.begin(t)
			first := h.every
			if t.ended > 0 {
				first = min(first, t.shortest)
			}
			running++
			go func() {
				h.execute(ctx, r, first)
				results <- ended{r, t}
			}()
		}
		if running == 0 {
			return failed
		}
		select {
		case r := <-results:
			running--
			if err := h.note(r.run, r.track); err != nil && failed == nil {
				failed = err
			}
		case <-tick.C:
			h.progress(tracks, deadline)
		}
	}
}

// load starts the neighbours, and prints what load the tests run under.
func (h *hunter) load() error {
	told := []string{plural(h.busy, "busy loop")}
	for range h.busy {
		if err := h.neighbours.start("busy"); err != nil {
			return err
		}
	}
	if h.disk {
		folder := filepath.Join(h.tmp, "disk")
		if err := os.Mkdir(folder, 0o700); err != nil {
			return err
		}
		if err := h.neighbours.start(folder); err != nil {
			return err
		}
		told = append(told, "a neighbour that writes and syncs in "+filepath.Dir(h.tmp))
	}
	if h.stop > 0 && canStop {
		told = append(told, fmt.Sprintf("stops of up to %s", h.stop))
	}
	limit := "until interrupted"
	switch {
	case h.time > 0:
		limit = "for " + short(h.time)
	case h.count > 0:
		limit = plural(h.count, "run") + " of each package"
	}
	h.say("running, %s, up to %d at once; load: %s", limit, h.jobs, strings.Join(told, ", "))
	return nil
}

// choose picks the package to run next. Each runs once first, then the one with
// the smallest product of runs and time spent. A package that takes a hundred
// times as long runs a tenth as often; that finds the most for the time. A
// package that would not end in time waits, unless it never ran. nil means
// none.
func choose(tracks []*track, count int, deadline time.Time) *track {
	var best, late *track
	for _, t := range tracks {
		if t.running || t.empty || count > 0 && t.begun >= count {
			continue
		}
		if t.begun == 0 {
			return t
		}
		if !deadline.IsZero() && t.shortest > time.Until(deadline) {
			if late == nil || t.weight() < late.weight() {
				late = t
			}
			continue
		}
		if best == nil || t.weight() < best.weight() {
			best = t
		}
	}
	if best == nil {
		return late
	}
	return best
}

func (t *track) weight() float64 { return float64(t.begun) * t.spent.Seconds() }

// begin makes the next run of a package. Runs alternate between one processor
// and two.
func (h *hunter) begin(t *track) *run {
	r := &run{pkg: t.pkg, number: h.runs, seed: rand.Int64N(1 << 40), cpu: 1 + t.begun%2}
	h.runs++
	t.begun++
	t.running, t.since = true, time.Now()
	return r
}

// note counts a finished run, and prints its failures.
func (h *hunter) note(r *run, t *track) error {
	t.running = false
	if r.err != nil {
		return fmt.Errorf("running the tests of %s: %w", r.pkg.name, r.err)
	}
	t.ended++
	t.spent += r.elapsed
	if t.shortest == 0 || r.elapsed < t.shortest {
		t.shortest = r.elapsed
	}
	t.empty = !r.cut && r.end == "" && len(r.outcome.tests) == 0
	failures := r.outcome.failures(r.end, r.cut)
	if len(failures) > 0 {
		if err := h.keepOutput(r); err != nil {
			return err
		}
	}
	h.tally.add(r, failures)
	for _, f := range failures {
		times := ""
		if f.times > 1 {
			times = fmt.Sprintf(" %d times", f.times)
		}
		h.say("FAIL %s %s%s: %s", r.pkg.name, f.name(), times, r)
		for _, l := range f.lines {
			h.say("       %s", l)
		}
		h.say("     in %s", r.file)
	}
	if r.left && !r.cut {
		h.say("note: %s left processes behind; they were killed", r.pkg.name)
	}
	return nil
}

// keepOutput writes the output of a failed run to a file.
func (h *hunter) keepOutput(r *run) error {
	if err := os.MkdirAll(h.folder, 0o755); err != nil {
		return err
	}
	flat := strings.ReplaceAll(strings.Trim(r.pkg.name, "./"), "/", "-")
	if flat == "" {
		flat = "root"
	}
	r.file = filepath.Join(h.folder, fmt.Sprintf("%s-%d.txt", flat, r.number))
	if rel, err := filepath.Rel(h.top, r.file); err == nil && !strings.HasPrefix(rel, "..") {
		r.file = rel
	}
	end := r.end
	if end == "" {
		end = "exit status 0"
	}
	if r.cut {
		end = "cut short by the end of the hunt"
	}
	head := fmt.Sprintf("%s: %s\nin %s: %s\nended with: %s\n\n", r.pkg.name, r, r.pkg.dir,
		strings.Join(r.args(h.options), " "), end)
	return os.WriteFile(r.file, []byte(head+r.outcome.text.String()), 0o644)
}

// progress prints how far the hunt is.
func (h *hunter) progress(tracks []*track, deadline time.Time) {
	var now []string
	waiting := 0
	for _, t := range tracks {
		if t.running {
			now = append(now, fmt.Sprintf("%s (%s)", t.name, short(time.Since(t.since))))
		}
		if t.begun == 0 {
			waiting++
		}
	}
	told := fmt.Sprintf("%s: %s, %s", short(time.Since(h.tally.began)),
		plural(h.tally.runs, "run"), plural(h.tally.failures, "failure"))
	if waiting > 0 {
		told += fmt.Sprintf(", %s not yet run", plural(waiting, "package"))
	}
	if !deadline.IsZero() {
		told += fmt.Sprintf(", %s left", short(time.Until(deadline)))
	}
	h.say("%s; now %s", told, strings.Join(now, ", "))
}

func (h *hunter) say(format string, args ...any) { say(h.out, format, args...) }

// say prints a line. Errors of writing are ignored: the terminal may be gone.
func say(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }

// short formats a duration in whole seconds.
func short(d time.Duration) string { return max(d, 0).Round(time.Second).String() }

// plural formats a number of things.
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
