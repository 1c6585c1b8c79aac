package holdcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// maxLeases is how many leases one process holds.
const maxLeases = 1000

// process is one run of croft hold.
type process struct {
	app     *cli.App
	client  *croft.Client
	out     *output
	single  *request // the one acquire of a run without --multi
	scratch string   // the folder with the files of leases

	life  context.Context // ends when the leases are to be given back
	calls context.Context // ends a moment later, for calls of the store under way
	ended chan error      // gets the result of the single lease
	lives sync.WaitGroup  // of the leases' goroutines

	mu     sync.Mutex
	leases map[string]*lease // by the parent's name
	count  int               // of all leases so far, to name their files
}

// refuse ends a process that cannot begin.
func (p *process) refuse(version string, err error) error {
	p.begin(version)
	defer p.out.close()
	return p.give(err)
}

// begin greets the parent.
func (p *process) begin(version string) {
	p.out = newOutput(p.app.Stdout.W)
	p.out.say(helloEvent{"hello", protocol, version, os.Getpid()})
}

// give tells the parent why the process ends, and returns the exit code.
func (p *process) give(err error) error {
	p.out.say(p.failure(0, "", err))
	return cli.ExitError(cli.OutcomeOf(err).Exit)
}

// serve opens the store and serves the parent. It returns an ExitError when it
// has told everything.
func (p *process) serve(ctx context.Context, version string) error {
	parent := os.Getppid()                              // before the parent may react to a message by dying
	ctx, stop := cli.Interruptible(ctx, syscall.SIGHUP) // HUP: a terminal has closed
	defer stop()
	p.begin(version)
	defer p.out.close()
	client, end, err := p.app.Client(ctx)
	if err != nil {
		return p.give(err)
	}
	defer end()
	p.client = client
	if p.scratch, err = os.MkdirTemp("", "croft-"); err != nil {
		return p.give(cli.Invalid("lease file: %v; name a folder that can be written in TMPDIR", err))
	}
	defer os.RemoveAll(p.scratch)

	var giveBack, hangUp context.CancelFunc
	p.calls, hangUp = context.WithCancel(context.WithoutCancel(ctx))
	defer hangUp()
	p.life, giveBack = context.WithCancel(p.calls)
	p.ended = make(chan error, 1)
	if p.single != nil {
		p.acquire(p.single)
	}
	err = p.run(ctx, parent)
	giveBack()
	time.AfterFunc(lastCalls, hangUp)
	p.lives.Wait()
	switch {
	case errors.Is(err, io.EOF):
		err = nil
		if p.single != nil {
			err = <-p.ended
		}
	case errors.Is(err, errUnread): // told only now: maybe nobody reads this, either
		fmt.Fprintf(p.app.Stderr, "croft: %s; the leases were given back\n", cli.Lines(p.app.Redact(err.Error())))
		err = cli.ExitError(cli.ExitFailed)
	}
	return err
}

// lastCalls is how long calls of the store go on after the parent has left.
// Then the leases are given back, which takes at most releaseTime.
const lastCalls = 2 * time.Second

// releaseTime is how long a release may take. Leases that are given back at the
// same time share the store, so each adds to it.
func (p *process) releaseTime() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return 2*time.Second + time.Duration(len(p.leases))*50*time.Millisecond
}

// run takes what happens until the process is to end. Then its caller gives the
// leases back. The error is io.EOF if the parent has left.
func (p *process) run(ctx context.Context, parent int) error {
	lines := make(chan line)
	done := make(chan struct{})
	defer close(done)
	go readLines(p.app.Stdin, lines, done)
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for {
		select {
		case l := <-lines:
			err := l.err
			if err == nil {
				err = p.handle(l.text)
			}
			switch {
			case errors.Is(err, io.EOF):
				return err
			case err != nil:
				return p.give(err)
			}
		case err := <-p.ended:
			return err
		case err := <-p.out.failed:
			return err
		case <-ctx.Done():
			return cli.ExitError(cli.ExitInterrupted)
		// A child of the parent may have inherited its end of our input. Then
		// the input does not end with the parent.
		case <-look.C:
			if os.Getppid() != parent {
				return io.EOF
			}
		}
	}
}

// handle starts what a message asks for. It returns an error only if the input
// cannot be trusted any more.
func (p *process) handle(text []byte) error {
	req, err := parse(p.app, text)
	switch {
	case errors.Is(err, errProtocol):
		return err
	case err == nil && req.do == doAcquire && p.single != nil:
		err = cli.Invalid("do %q: this process holds one lease; start croft hold --multi", doAcquire)
	}
	if err != nil {
		p.out.say(p.failure(req.id, req.lease, err))
		return nil
	}
	if req.do == doAcquire {
		p.acquire(req)
		return nil
	}
	if p.single != nil && req.lease == "" {
		req.lease = p.single.lease
	}
	if err := p.pass(req); err != nil {
		p.out.say(p.failure(req.id, req.lease, err))
	}
	return nil
}

// acquire starts the life of a lease.
func (p *process) acquire(req *request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var err error
	switch {
	case p.leases[req.lease] != nil:
		err = cli.Invalid("lease %q: there is one of this name; use each name once", req.lease)
	case len(p.leases) == maxLeases:
		err = cli.Invalid("lease %q: this process has %d leases, as many as it may", req.lease, maxLeases)
	}
	if err != nil {
		p.out.say(p.failure(req.id, req.lease, err))
		return
	}
	p.count++
	l := &lease{
		p: p, name: req.lease, inbox: make(chan *request, maxInbox+1), // one for the end
		file: filepath.Join(p.scratch, "lease-"+strconv.Itoa(p.count)),
	}
	asking, abandon := context.WithCancelCause(p.life)
	l.abandon = func() { abandon(errCancelled) }
	p.leases[req.lease] = l
	p.lives.Go(func() { l.live(asking, req) })
}

// errNoLease answers a request about a lease that is over, or never was.
var errNoLease = fmt.Errorf("%w: this process holds no lease of this name, or no longer", tenure.ErrNotOwned)

// pass answers verify, and hands all other requests to their lease.
func (p *process) pass(req *request) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.leases[req.lease]
	switch {
	case l == nil:
		return errNoLease
	case req.do == doVerify && l.held == nil:
		return fmt.Errorf("%w: the key has not been granted yet", tenure.ErrNotOwned)
	case req.do == doVerify:
		if err := l.held.Err(); err != nil {
			return err
		}
		p.out.say(alive(req, l.held))
		return nil
	}
	ends := req.do == doRelease || req.do == doFail
	if len(l.inbox) == maxInbox && !ends || len(l.inbox) == cap(l.inbox) {
		return fmt.Errorf("%w: %d requests about this lease wait for the store; wait for answers before you send more",
			fence.ErrInvalid, maxInbox)
	}
	l.inbox <- req // has room: only this goroutine sends
	if l.held == nil && ends {
		l.abandon()
	}
	return nil
}

// forget takes a lease out of the table. It returns the requests that it has
// not served.
func (p *process) forget(l *lease) (left []*request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.leases, l.name)
	for {
		select {
		case req := <-l.inbox:
			left = append(left, req)
		default:
			return left
		}
	}
}
