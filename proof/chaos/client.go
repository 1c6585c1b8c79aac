package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/proof/history"
	"github.com/croft-dev/croft/store"
)

// asked is the environment variable that makes a process a client.
const asked = "CROFT_CHAOS_CLIENT"

// brief is the job description of a client. The run passes it as JSON.
type brief struct {
	Backend string
	Process string
	// Owner stays the same when a process is killed and another follows.
	Owner    string
	Operator bool   // acts by hand
	Folder   string // of the histories
	Store    string
	Site     string
	Clients  int // without operators
	Keys     int
	TTL      time.Duration
	Seed     uint64
	Guarded  bool
}

// ServeIfAsked turns this process into a client or a server, if a run started
// it as one. Then it does not return. Programs and test binaries that call Run
// must call it first.
func ServeIfAsked() {
	var job interface{ serve() error } = &brief{}
	text := os.Getenv(asked)
	if text == "" {
		text, job = os.Getenv(askedServer), &serverBrief{}
	}
	if text == "" {
		return
	}
	err := json.Unmarshal([]byte(text), job)
	if err == nil {
		err = job.serve()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func key(n int) string { return fmt.Sprintf("chaos/key-%02d", n) }

func owner(n int) string { return fmt.Sprintf("c%02d", n) }

// serve works until stdin is closed.
func (b brief) serve() error {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	c, err := b.open(ctx)
	if err != nil || c == nil {
		return err
	}
	one := c.turn
	if b.Operator {
		c.guards()
		one = c.act
	}
	for ctx.Err() == nil {
		one(ctx)
	}
	return c.close()
}

// worker is a client at work.
type worker struct {
	brief
	rec       *history.Recorder
	st        store.Store
	client    *croft.Client
	resources []resource
	random    *rand.Rand
	made      int // counts updates, to name them
}

// open opens the store and all resources. Servers may be down at the moment, so
// it tries until ctx ends. Then it returns nil and no error.
func (b brief) open(ctx context.Context) (*worker, error) {
	backend, ok := Find(b.Backend)
	if !ok {
		return nil, fmt.Errorf("there is no backend %q", b.Backend)
	}
	rec, err := history.NewRecorder(b.Folder, b.Process)
	if err != nil {
		return nil, err
	}
	w := &worker{brief: b, rec: rec, random: rand.New(rand.NewPCG(b.Seed, 0))}
	w.st, err = insist(ctx, func() (store.Store, error) { return store.Open(ctx, b.Store) })
	for n := 0; n < b.Keys && err == nil; n++ {
		var p resource
		p, err = insist(ctx, func() (resource, error) { return backend.open(ctx, b.Site, key(n)) })
		w.resources = append(w.resources, p)
	}
	if err != nil {
		if ctx.Err() != nil {
			err = nil
		}
		return nil, err
	}
	w.client = croft.New(rec.NewStore(w.st), &croft.Options{Owner: b.Owner, CallTimeout: b.TTL})
	return w, nil
}

// insist repeats try until it succeeds, ctx ends or patience is over.
func insist[T any](ctx context.Context, try func() (T, error)) (T, error) {
	giveUp := time.Now().Add(patience)
	for {
		got, err := try()
		if err == nil || ctx.Err() != nil || time.Now().After(giveUp) {
			return got, err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (w *worker) close() error {
	err := w.client.Close()
	if errors.Is(err, croft.ErrUnknown) { // the lease lapses by itself
		err = nil
	}
	for _, p := range w.resources {
		p.close()
	}
	return errors.Join(err, w.st.Close(), w.rec.Close())
}

// turn acquires one lease, makes some updates under it and releases it.
func (w *worker) turn(ctx context.Context) {
	n := w.random.IntN(w.Keys)
	p := w.resources[n]
	o := &croft.LeaseOptions{TTL: w.TTL, WaitFor: 2 * w.TTL}
	if w.Guarded {
		o.Guards = []guard.Guard{w.guard(n)}
	}
	lease, err := w.client.Acquire(ctx, key(n), o)
	if err != nil {
		w.rest(w.TTL / 20)
		return
	}
	for i := range uint64(1 + w.random.IntN(3)) {
		if !w.sure(lease) {
			resumed, err := w.resume(lease)
			if err != nil {
				break
			}
			lease = resumed
		}
		stamp := lease.Stamp()
		stamp.Seq = i + 1
		if !w.update(stamp, p, func() { w.sure(lease) }) {
			break
		}
	}
	_ = lease.Release(context.WithoutCancel(ctx)) // if it fails, the lease lapses
}

// resume tries to resume a lease that ended by time, in half of the cases.
// Otherwise it returns the lease's error.
func (w *worker) resume(l *croft.Lease) (*croft.Lease, error) {
	if w.random.IntN(2) == 0 {
		return nil, l.Err()
	}
	ctx, cancel := context.WithTimeout(context.Background(), w.TTL)
	defer cancel()
	return l.Resume(ctx)
}

// sure records that the client holds the key, if the client thinks so. It takes
// the time before it looks at the lease: a client that is stopped in between
// was right at that time.
func (w *worker) sure(l *croft.Lease) bool {
	at := history.Now()
	if l.Err() != nil {
		return false
	}
	s := l.Stamp()
	w.rec.Note(
		at, history.Call{Kind: history.Holds, Key: s.Key, Token: s.Token, Grant: s.Grant},
		history.Result{Outcome: history.OK},
	)
	return true
}

// update reads, thinks and writes, and reports whether to go on. It does not
// check the lease: the guard decides whether the write counts. It calls before
// just before the write.
func (w *worker) update(stamp fence.Stamp, p resource, before func()) bool {
	prior, err := look(w.rec, stamp.Key, p, w.TTL)
	if err != nil {
		return false
	}
	w.think()
	before()
	w.made++
	name := fmt.Sprintf("%s.%d", w.Process, w.made)
	for range 3 { // the sequence number makes it safe to send a write of unknown outcome again
		out := w.rec.Write(stamp, name, prior, func() error { return w.write(p, stamp, name) })
		switch history.Admitted(out).Outcome {
		case history.OK, history.Repeated:
			return true
		case history.Unknown:
			w.rest(w.TTL / 50)
		default:
			return false
		}
	}
	return false
}

func (w *worker) write(p resource, stamp fence.Stamp, update string) error {
	ctx, cancel := context.WithTimeout(context.Background(), w.TTL*3/2)
	defer cancel()
	if w.Guarded {
		return p.write(ctx, stamp, update)
	}
	return p.bare(ctx, update)
}

// look reads the content of a resource, and records that.
func look(rec *history.Recorder, key string, p resource, within time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	id := rec.Begin(history.Call{Kind: history.Read, Key: key})
	holds, err := p.read(ctx)
	out := history.Result{Outcome: history.OK, Update: holds}
	if err != nil {
		out = history.Result{Outcome: history.Unknown, Error: err.Error()}
	}
	rec.End(id, out)
	return holds, err
}

// think pauses for a moment, and in one of three cases for up to 3/4 of a TTL.
// Faults do their harm in these pauses.
func (w *worker) think() {
	most := w.TTL / 8
	if w.random.IntN(3) == 0 {
		most = w.TTL * 3 / 4
	}
	w.rest(most)
}

func (w *worker) rest(most time.Duration) { time.Sleep(rand.N(most)) }
