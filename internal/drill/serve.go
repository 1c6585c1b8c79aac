package drill

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// Serve is the worker's side. It carries out the orders that it reads from in,
// one after the other, and writes the replies to out. It returns when in ends,
// even if an order is still under way: the director is gone, and the process
// should end, too. meter counts the events of the worker; nil means no meter.
func Serve(ctx context.Context, in io.Reader, out io.Writer, meter *Meter) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	orders, failed := make(chan order), make(chan error, 2)
	go func() { failed <- readOrders(ctx, in, orders) }()
	go func() {
		e, enc := &executor{meter: meter}, json.NewEncoder(out)
		for o := range orders {
			r, err := e.carryOut(ctx, o)
			r.ID, r.Err, r.Renewed = o.ID, failureOf(err), e.renewals()
			if err := enc.Encode(r); err != nil {
				failed <- err
				return
			}
		}
	}()
	return <-failed
}

func readOrders(ctx context.Context, in io.Reader, orders chan<- order) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var o order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return fmt.Errorf("%w order: %w; this command is for the drill's own use", fence.ErrInvalid, err)
		}
		select {
		case orders <- o:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return lines.Err()
}

// executor carries out a worker's orders, on one goroutine. Other goroutines
// use only ended and renewed.
type executor struct {
	meter    *Meter
	tap      *tap
	client   *croft.Client
	lease    *croft.Lease
	deed     tenure.Deed
	artifact artifact
	begun    *halting
	result   chan error // of the begun write
	stall    *stall

	mu      sync.Mutex
	ended   map[*croft.Lease]time.Time // when a lease's context ended
	renewed []time.Time                // since the last reply
}

func (e *executor) carryOut(ctx context.Context, o order) (reply, error) {
	switch o.Do {
	case doSetUp:
		return reply{}, e.setUp(ctx, o)
	case doLook:
		rec, err := e.tap.Get(ctx, o.Key)
		return reply{Record: rec}, err
	case doAcquire:
		return e.acquire(ctx, o)
	case doLoseNext:
		e.tap.lose()
		return reply{}, nil
	case doRepeat:
		rec, err := e.tap.repeat(ctx)
		return reply{Record: rec}, err
	case doRenew:
		rec, err := e.client.Renew(ctx, e.deed, o.Resume)
		return reply{Record: rec}, err
	case doRelease:
		rec, err := e.client.Release(ctx, e.deed, false)
		return reply{Record: rec}, err
	case doTakeOver:
		return e.takeOver(ctx, o)
	case doWrite:
		_, err := e.artifact.Write(ctx, e.deed.Stamp(), strings.NewReader(o.Text+"\n"))
		return reply{}, err
	case doBegin:
		return reply{}, e.begin(ctx, o.Text+"\n")
	case doFinish:
		return reply{}, e.finish()
	case doEnd:
		return e.end(ctx, o.Wait)
	case doCut:
		e.tap.cut()
		e.stall = watchStall()
		return reply{}, nil
	case doReach:
		e.tap.reach()
		return reply{}, nil
	case doPut:
		return e.put(ctx, o)
	case doCount:
		if e.meter == nil {
			return reply{}, errors.New("this worker has no meter")
		}
		counted, err := e.meter.Read()
		return reply{Metrics: counted}, err
	}
	return reply{}, fmt.Errorf("%w order %q", fence.ErrInvalid, o.Do)
}

func (e *executor) setUp(ctx context.Context, o order) error {
	st, err := store.Open(ctx, o.Store)
	if err != nil {
		return err
	}
	e.tap = newTap(st)
	e.client = croft.New(e.tap, &croft.Options{Owner: o.Owner, Observe: e.observe})
	return nil
}

// observe notes renewals, and tells the meter of all events.
func (e *executor) observe(event croft.Event) {
	if event.Kind == croft.EventRenewed {
		e.mu.Lock()
		e.renewed = append(e.renewed, time.Now())
		e.mu.Unlock()
	}
	if e.meter != nil {
		e.meter.Event(event)
	}
}

// renewals takes the renewals since the last call.
func (e *executor) renewals() []time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	renewed := e.renewed
	e.renewed = nil
	return renewed
}

func (e *executor) acquire(ctx context.Context, o order) (reply, error) {
	var guards []guard.Guard
	if o.Path != "" {
		artifact, named, err := openArtifact(ctx, o.Target, o.Path)
		if err != nil {
			return reply{}, err
		}
		e.artifact, guards = artifact, named
	}
	if !o.At.IsZero() {
		time.Sleep(time.Until(o.At))
	}
	e.tap.forget()
	lease, err := e.client.Acquire(ctx, o.Key, &croft.LeaseOptions{TTL: o.TTL, WaitFor: o.Wait, Guards: guards})
	r := reply{Tokens: e.tap.granted()}
	if err != nil {
		return r, err
	}
	e.lease, e.deed = lease, lease.Deed()
	context.AfterFunc(lease.Context(), func() { e.endedAt(lease) })
	r.Record = lease.Record()
	return r, nil
}

func (e *executor) takeOver(ctx context.Context, o order) (reply, error) {
	by := croft.ByHand{Note: o.Note, TTL: o.TTL}
	if o.Target != "" {
		var err error
		if by.Raise, err = guard.Allow(o.Target); err != nil {
			return reply{}, err
		}
	}
	t, err := e.client.Takeover(ctx, o.Key, by)
	if t == nil {
		return reply{}, err
	}
	if e.artifact, _, err = openArtifact(ctx, o.Target, o.Path); err != nil {
		return reply{}, err
	}
	e.deed = t.Deed
	r := reply{Record: t.Record}
	for _, raise := range t.Raised {
		if raise.Err == nil {
			r.Raised++
		} else {
			r.Unraised++
		}
	}
	return r, nil
}

// begin starts a write and hands over the first half. It returns while the
// write waits for the rest.
func (e *executor) begin(ctx context.Context, text string) error {
	begun, result := halve(text), make(chan error, 1)
	artifact, stamp := e.artifact, e.deed.Stamp()
	go func() {
		_, err := artifact.Write(ctx, stamp, begun)
		result <- err
	}()
	e.begun, e.result = begun, result
	select {
	case <-begun.reached:
		return nil
	case err := <-result:
		if err == nil {
			err = errors.New("the write ended before all of it was there")
		}
		return err
	}
}

func (e *executor) finish() error {
	if e.begun == nil {
		return errors.New("there is no write to finish")
	}
	close(e.begun.allowed)
	return <-e.result
}

// end waits for the end of the lease. It returns why and when the lease ended.
// If Loss is empty, the lease has not ended in time.
func (e *executor) end(ctx context.Context, wait time.Duration) (reply, error) {
	if e.lease == nil {
		return reply{}, errors.New("there is no lease that could end")
	}
	patience := time.NewTimer(wait)
	defer patience.Stop()
	select {
	case <-patience.C:
		return reply{}, nil
	case <-e.lease.Done():
	case <-ctx.Done():
		return reply{}, context.Cause(ctx)
	}
	r := reply{At: e.endedAt(e.lease), Stall: e.stall.stop()}
	var lost *croft.LostError
	if errors.As(e.lease.Err(), &lost) {
		r.Loss = string(lost.Loss)
	}
	return r, nil
}

// endedAt is when the lease's context ended. The first caller sets it: the
// order that waits for the end, or the context's callback.
func (e *executor) endedAt(lease *croft.Lease) time.Time {
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended == nil {
		e.ended = map[*croft.Lease]time.Time{}
	}
	if _, noted := e.ended[lease]; !noted {
		e.ended[lease] = now
	}
	return e.ended[lease]
}
