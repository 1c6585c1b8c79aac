package holdcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/cmd/croft/internal/cli"
)

// maxInbox is how many requests about one lease may wait for the store.
const maxInbox = 64

// lease is a lease in the hands of the parent, or on its way there.
type lease struct {
	p       *process
	name    string // the parent's name for it
	file    string // has the deed, while the lease is held
	inbox   chan *request
	abandon func() // gives the acquire up; does nothing later

	held *croft.Lease // nil until it is granted; process.mu protects it
}

// live is the life of a lease. A run without --multi ends with it.
func (l *lease) live(asking context.Context, req *request) {
	err := l.hold(asking, req)
	for _, left := range l.p.forget(l) {
		if l.held == nil && (left.do == doRelease || left.do == doFail) { // nothing is held, as it should be
			l.p.out.say(releasedEvent{about: about{"released", left.id, l.name}})
			continue
		}
		l.p.out.say(l.p.failure(left.id, l.name, errNoLease))
	}
	if l.p.single == nil {
		return
	}
	switch {
	case errors.Is(err, errCancelled):
		err = cli.ExitError(cli.ExitInterrupted)
	case err != nil:
		err = cli.ExitError(cli.OutcomeOf(err).Exit)
	}
	l.p.ended <- err
}

// hold takes the key and holds it until it is given back or lost. It tells the
// parent how that ended, and returns the error.
func (l *lease) hold(asking context.Context, req *request) error {
	defer os.Remove(l.file)
	held, err := l.acquire(asking, req)
	if err != nil {
		if cause := context.Cause(asking); errors.Is(cause, errCancelled) && errors.Is(err, context.Canceled) {
			err = cause
		}
		l.p.out.say(l.p.failure(req.id, l.name, err))
		return err
	}
	for {
		if err := held.Err(); err != nil { // before requests that wait: they are too late
			l.p.out.say(l.p.lostBy(l.name, err))
			l.linger(err)
			return err
		}
		select {
		case <-l.p.life.Done():
			return l.settle()
		case <-held.Done():
		case next := <-l.inbox:
			if next.do == doRelease || next.do == doFail {
				return l.giveBack(next)
			}
			l.serve(next)
		}
	}
}

// linger waits with a lease that was lost before its deadline: it was held too
// long, or the store did not answer. The parent may still be stopping its work,
// and the store keeps the key from others. So the lease goes back as failed
// when the parent says that it has stopped, or has left.
func (l *lease) linger(lost error) {
	deadline := time.NewTimer(l.held.Remaining())
	defer deadline.Stop()
	for l.held.Remaining() > 0 {
		select {
		case <-deadline.C:
		case <-l.p.life.Done():
			_ = l.end(l.held.Fail)
			return
		case next := <-l.inbox:
			if next.do == doFail {
				_ = l.giveBack(next)
				return
			}
			l.p.out.say(l.p.failure(next.id, l.name, lost))
			if next.do == doRelease { // its success does not count
				_ = l.end(l.held.Fail)
				return
			}
		}
	}
}

// settle ends a lease whose parent has left. What the parent has asked for
// before counts: it may have released the lease and not waited for the answer.
func (l *lease) settle() error {
	for {
		select {
		case next := <-l.inbox:
			if next.do == doRelease || next.do == doFail {
				return l.giveBack(next)
			}
			l.serve(next)
		default:
			return l.giveBack(&request{do: doFail})
		}
	}
}

// acquire takes the key, writes the lease's file, and tells the parent.
func (l *lease) acquire(ctx context.Context, req *request) (*croft.Lease, error) {
	guards, closeGuards, err := cli.OpenGuards(ctx, req.terms.targets)
	if err != nil {
		return nil, err
	}
	defer closeGuards()
	o := req.terms.lease
	o.Guards = guards
	held, err := l.p.client.Acquire(ctx, req.key, &o)
	if err != nil {
		return nil, cli.Reentrant(err)
	}
	if err := os.WriteFile(l.file, []byte(held.Deed().Text()+"\n"), 0o600); err != nil {
		if failed := held.Fail(context.WithoutCancel(ctx)); failed != nil {
			return nil, fmt.Errorf("lease file: %w; the key could not be given back and lapses: %w", err, failed)
		}
		return nil, fmt.Errorf("lease file: %w; the key was given back", err)
	}
	l.p.mu.Lock()
	l.held = held
	l.p.mu.Unlock()
	rec := held.Record()
	l.p.out.say(grantedEvent{
		about: about{"granted", req.id, l.name}, Key: held.Key(), Token: held.Token(), Stamp: held.Stamp().String(),
		Owner: rec.Owner, Cause: rec.Cause, Deadline: cli.When(rec.Deadline), TTL: held.Deed().TTL.Seconds(),
		Remaining: remaining(held), LeaseFile: l.file, Checkpoint: held.Checkpoint(),
	})
	return held, nil
}

// serve carries out a request that asks the store, and answers it. The end of
// the lease ends the call: if the store hangs, the parent must hear of the
// loss.
func (l *lease) serve(req *request) {
	ctx, stop := context.WithCancel(l.p.calls)
	defer stop()
	defer context.AfterFunc(l.held.Context(), stop)()
	var err error
	switch req.do {
	case doRenew:
		ttl := req.ttl
		if ttl == 0 {
			ttl = l.held.Deed().TTL
		}
		err = l.held.SetTTL(ctx, ttl)
	case doReport:
		err = l.held.Report(ctx, req.marker)
	case doCheckpoint:
		err = l.held.Save(ctx, req.checkpoint)
	}
	if lost := l.held.Err(); err != nil && lost != nil {
		err = lost
	}
	if err != nil {
		l.p.out.say(l.p.failure(req.id, l.name, err))
		return
	}
	req.lease = l.name
	l.p.out.say(alive(req, l.held))
}

// giveBack gives the lease back, and tells the parent. If that cannot be
// confirmed, the key frees itself at its deadline.
func (l *lease) giveBack(req *request) error {
	give := l.held.Fail
	if req.do == doRelease {
		give = l.held.Release
	}
	if err := l.end(give); err != nil {
		l.p.out.say(l.p.failure(req.id, l.name, err))
		return err
	}
	l.p.out.say(releasedEvent{about{"released", req.id, l.name}, l.held.Key(), l.held.Token()})
	return nil
}

// end calls Release or Fail of the lease, also after the parent has left.
func (l *lease) end(give func(context.Context) error) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(l.p.life), l.p.releaseTime())
	defer stop()
	return give(ctx)
}
