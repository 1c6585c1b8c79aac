package drill

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// Options say where and how to drill.
type Options struct {
	// Store is the store under test. URL is the address at which workers open
	// the same store. Both are required.
	Store store.Store
	URL   string
	// Worker makes the command of a worker process: a program that calls Serve
	// with its standard input and output. Required.
	Worker func() *exec.Cmd
	// TTL is the TTL of every lease. Default 2 seconds. The drill waits in real
	// time.
	TTL time.Duration
	// Dir is the folder in which the drill makes a folder for its guarded
	// files. Default: the system's folder for temporary files.
	Dir string
	// Unguarded leaves out the fence: workers replace their files without any
	// check.
	Unguarded bool
	// Keep leaves the files and the keys in place at the end.
	Keep bool
	// Contenders is how many processes race for one expired lease. Default 24.
	Contenders int
	// Target turns a file's path into the target for guard.Open. Default: the
	// path itself.
	Target func(path string) string
	// Meter makes a meter for the fence in front of the HTTP service. RunStaged
	// requires it, and requires that workers have a meter, too. Run does not
	// use it.
	Meter func() *Meter
	// Progress is called with a scene's name and a message for people. The name
	// is "" if the message is about the whole drill. Several goroutines call
	// it. Default: no messages.
	Progress func(scene, text string)
}

// director runs one drill.
type director struct {
	o         Options
	keys, dir string
	client    *croft.Client
	patience  time.Duration

	mu      sync.Mutex
	workers []*worker
}

// takes is how often a scene is played at most, if a busy machine spoils it.
const takes = 3

// Run plays all scenes and reports what happened. It returns an error, and no
// report, if the drill could not begin or ctx has ended. It always ends all its
// processes. Unless Keep is set, it also removes its files and releases its
// leases.
func Run(ctx context.Context, o Options) (*Report, error) {
	return run(ctx, o, (*director).sideBySide)
}

func run(
	ctx context.Context, o Options, perform func(*director, context.Context, *Report) error,
) (report *Report, err error) {
	if Supported != nil {
		return nil, Supported
	}
	d, err := newDirector(o)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	defer func() {
		left := d.cleanUp()
		if report != nil {
			report.Left, report.Took = left, time.Since(began)
		}
	}()
	if err := d.probe(ctx); err != nil {
		return nil, err
	}
	report = &Report{Keys: d.keys, Dir: d.dir, TTL: d.o.TTL, Guarded: !d.o.Unguarded}
	if err := perform(d, ctx, report); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return report, nil
}

// sideBySide plays all scenes at once.
func (d *director) sideBySide(ctx context.Context, report *Report) error {
	casts, err := d.startWorkers(ctx)
	if err != nil {
		return err
	}
	report.Processes = len(d.workers)
	if report.Began, err = d.o.Store.Now(ctx); err != nil {
		return store.Unknown(err)
	}
	d.say("", fmt.Sprintf("%d worker processes are up; playing %d scenes side by side", report.Processes, len(scripts)))
	report.Scenes = make([]Scene, len(scripts))
	var wg sync.WaitGroup
	for i, script := range scripts {
		wg.Go(func() { report.Scenes[i] = d.play(ctx, script, casts[i]) })
	}
	wg.Wait()
	return nil
}

func newDirector(o Options) (*director, error) {
	if o.TTL == 0 {
		o.TTL = 2 * time.Second
	}
	if o.Contenders == 0 {
		o.Contenders = 24
	}
	if o.Target == nil {
		o.Target = func(path string) string { return path }
	}
	if o.Progress == nil {
		o.Progress = func(string, string) {}
	}
	var id [3]byte
	_, _ = rand.Read(id[:]) // never fails
	name := hex.EncodeToString(id[:])
	dir, err := os.MkdirTemp(o.Dir, "croft-drill-"+name+"-")
	if err != nil {
		return nil, fmt.Errorf("%w folder for the guarded files: %w; give one that can be written to with --dir",
			fence.ErrInvalid, err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	return &director{
		o: o, keys: "croft-drill/" + name + "/", dir: dir, patience: 30*time.Second + 2*o.TTL,
		client: croft.New(o.Store, &croft.Options{Owner: "drill"}),
	}, nil
}

func (d *director) say(scene, text string) { d.o.Progress(scene, text) }

// probe checks that the store answers and that a guard opens. It returns their
// errors.
func (d *director) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, d.patience)
	defer cancel()
	if _, err := d.o.Store.Now(ctx); err != nil {
		return store.Unknown(err)
	}
	if d.o.Unguarded {
		return nil
	}
	_, target := d.fileOf("probe")
	g, err := guard.Open(ctx, target)
	if err != nil {
		return err
	}
	defer g.Close()
	_, err = g.Mark(ctx)
	return err
}

// startWorkers starts all workers of all scenes before the first is played.
// Starting is work, and would disturb running scenes.
func (d *director) startWorkers(ctx context.Context) ([]map[string]*worker, error) {
	casts := make([]map[string]*worker, len(scripts))
	errs := make(chan error)
	n := 0
	room := make(chan struct{}, max(2, runtime.NumCPU()))
	var mu sync.Mutex
	for i, script := range scripts {
		casts[i] = map[string]*worker{}
		names := script.cast
		for c := range script.contenders(d.o.Contenders) {
			names = append(names[:len(names):len(names)], contender(c))
		}
		for _, owner := range names {
			n++
			go func() {
				room <- struct{}{}
				w, err := d.startWorker(ctx, owner)
				<-room
				mu.Lock()
				casts[i][owner] = w
				mu.Unlock()
				errs <- err
			}()
		}
	}
	var err error
	for range n {
		err = errors.Join(err, <-errs)
	}
	if err != nil {
		return nil, err
	}
	return casts, d.checkShared(ctx, casts[0]["A"])
}

// startWorker starts a worker and lets it open the store.
func (d *director) startWorker(ctx context.Context, owner string) (*worker, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	w, err := start(d.o.Worker(), owner, d.patience)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	d.workers = append(d.workers, w)
	d.mu.Unlock()
	if r := w.call(ctx, order{Do: doSetUp, Store: d.o.URL, Owner: owner}); r.Err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, store.Unknown(fmt.Errorf("a worker process cannot open the store: %s", r.Err.Message))
	}
	return w, nil
}

// checkShared checks that workers see what this process writes. They do not if
// the store lives in one process's memory.
func (d *director) checkShared(ctx context.Context, w *worker) error {
	lease, err := d.client.Acquire(ctx, d.keys+"roll-call", &croft.LeaseOptions{TTL: d.o.TTL})
	if err != nil {
		return err
	}
	r := w.call(ctx, order{Do: doLook, Key: lease.Key()})
	err = lease.Release(ctx)
	// The machine may stand still for a moment. That need not end the drill.
	for errors.Is(err, croft.ErrUnknown) && ctx.Err() == nil {
		err = lease.Release(ctx)
	}
	if err != nil && !errors.Is(err, croft.ErrLost) && !errors.Is(err, croft.ErrNotOwned) {
		return err
	}
	switch {
	case r.Err != nil:
		return store.Unknown(errors.New(r.Err.Message))
	case r.Record.Token != lease.Token():
		return fmt.Errorf("%w store for a drill: other processes do not see what this one writes to it; "+
			"name one that processes share", fence.ErrInvalid)
	}
	return nil
}

// play plays a scene. It plays it again, with fresh workers, if the machine was
// too busy for it to prove anything.
func (d *director) play(ctx context.Context, sc script, cast map[string]*worker) Scene {
	for take := 1; ; take++ {
		name := sc.name
		if take > 1 {
			name += "-" + strconv.Itoa(take)
		}
		s := &stage{director: d, Scene: Scene{Name: sc.name, Story: sc.story, Key: d.keys + name}, cast: cast}
		s.path, s.target = d.fileOf(name)
		sc.play(ctx, s)
		if s.spoilt() && take < takes && ctx.Err() == nil {
			d.say(sc.name, "this machine was too busy for that to prove anything: once more")
			if cast = d.replace(ctx, cast); cast != nil {
				continue
			}
		}
		s.owners(ctx)
		return s.Scene
	}
}

// replace ends the workers of a scene and starts new ones. The old ones may be
// stopped, cut off or dead.
func (d *director) replace(ctx context.Context, cast map[string]*worker) map[string]*worker {
	fresh := map[string]*worker{}
	for owner, old := range cast {
		old.kill()
		w, err := d.startWorker(ctx, owner)
		if err != nil {
			return nil
		}
		fresh[owner] = w
	}
	return fresh
}

// cleanUp ends every worker, releases every key that is still held, and removes
// the files. It returns the keys that it could not release.
func (d *director) cleanUp() (left []string) {
	d.mu.Lock()
	workers := d.workers
	d.mu.Unlock()
	for _, w := range workers {
		w.kill()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // the caller's ctx may have ended
	defer cancel()
	if !d.o.Keep {
		left = d.release(ctx)
		_ = os.RemoveAll(d.dir)
	}
	_ = d.client.Close()
	return left
}

// release revokes all keys that are still held. It returns those that it could
// not revoke.
func (d *director) release(ctx context.Context) (left []string) {
	now, err := d.o.Store.Now(ctx)
	if err != nil {
		return []string{d.keys}
	}
	var keys []string
	for rec, err := range d.o.Store.List(ctx, d.keys) {
		if err != nil {
			return []string{d.keys}
		}
		if rec.StateAt(now) != tenure.Free {
			keys = append(keys, rec.Key)
		}
	}
	for _, key := range keys {
		if done, _ := d.client.Revoke(ctx, key, croft.ByHand{Note: "the drill is over"}); done == nil {
			left = append(left, key)
		}
	}
	return left
}
