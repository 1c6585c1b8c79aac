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
		h, enc := &hand{meter: meter}, json.NewEncoder(out)
		for o := range orders {
			r, err := h.carryOut(ctx, o)
			r.ID, r.Err = o.ID, failureOf(err)
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

// hand is a worker's state. Except ended, it belongs to the goroutine that
// carries out orders.
type hand struct {
	meter  *Meter
	tap    *tap
	client *croft.Client
	lease  *croft.Lease
	deed   tenure.Deed
	place  artifact
	begun  *halting
	result chan error // of the begun write
	stall  *stall

	mu    sync.Mutex
	ended map[*croft.Lease]time.Time // when a lease's context ended
}

func (h *hand) carryOut(ctx context.Context, o order) (reply, error) {
	switch o.Do {
	case doSetUp:
		return reply{}, h.setUp(ctx, o)
	case doLook:
		rec, err := h.tap.Get(ctx, o.Key)
		return reply{Record: rec}, err
	case doAcquire:
		return h.acquire(ctx, o)
	case doLoseNext:
		h.tap.lose()
		return reply{}, nil
	case doRepeat:
		rec, err := h.tap.repeat(ctx)
		return reply{Record: rec}, err
	case doRenew:
		rec, err := h.client.Renew(ctx, h.deed, o.Resume)
		return reply{Record: rec}, err
	case doRelease:
		rec, err := h.client.Release(ctx, h.deed, false)
		return reply{Record: rec}, err
	case doTakeOver:
		return h.takeOver(ctx, o)
	case doWrite:
		_, err := h.place.Write(ctx, h.deed.Stamp(), strings.NewReader(o.Text+"\n"))
		return reply{}, err
	case doBegin:
		return reply{}, h.begin(ctx, o.Text+"\n")
	case doFinish:
		return reply{}, h.finish()
	case doEnd:
		return h.end(ctx, o.Wait)
	case doCut:
		h.tap.cut()
		h.stall = watchStall()
		return reply{}, nil
	case doReach:
		h.tap.reach()
		return reply{}, nil
	case doPut:
		return h.put(ctx, o)
	case doCount:
		if h.meter == nil {
			return reply{}, errors.New("this worker has no meter")
		}
		counted, err := h.meter.Read()
		return reply{Metrics: counted}, err
	}
	return reply{}, fmt.Errorf("%w order %q", fence.ErrInvalid, o.Do)
}

func (h *hand) setUp(ctx context.Context, o order) error {
	st, err := store.Open(ctx, o.Store)
	if err != nil {
		return err
	}
	h.tap = newTap(st)
	options := &croft.Options{Owner: o.Owner}
	if h.meter != nil {
		options.Observe = h.meter.Event
	}
	h.client = croft.New(h.tap, options)
	return nil
}

func (h *hand) acquire(ctx context.Context, o order) (reply, error) {
	var guards []guard.Guard
	if o.Path != "" {
		place, named, err := openArtifact(ctx, o.Target, o.Path)
		if err != nil {
			return reply{}, err
		}
		h.place, guards = place, named
	}
	if !o.At.IsZero() {
		time.Sleep(time.Until(o.At))
	}
	h.tap.forget()
	lease, err := h.client.Acquire(ctx, o.Key, &croft.LeaseOptions{TTL: o.TTL, WaitFor: o.Wait, Guards: guards})
	r := reply{Tokens: h.tap.granted()}
	if err != nil {
		return r, err
	}
	h.lease, h.deed = lease, lease.Deed()
	context.AfterFunc(lease.Context(), func() { h.endedAt(lease) })
	r.Record = lease.Record()
	return r, nil
}

func (h *hand) takeOver(ctx context.Context, o order) (reply, error) {
	by := croft.ByHand{Note: o.Note, TTL: o.TTL}
	if o.Target != "" {
		var err error
		if by.Raise, err = guard.Allow(o.Target); err != nil {
			return reply{}, err
		}
	}
	t, err := h.client.Takeover(ctx, o.Key, by)
	if t == nil {
		return reply{}, err
	}
	if h.place, _, err = openArtifact(ctx, o.Target, o.Path); err != nil {
		return reply{}, err
	}
	h.deed = t.Deed
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
func (h *hand) begin(ctx context.Context, text string) error {
	begun, result := halve(text), make(chan error, 1)
	place, stamp := h.place, h.deed.Stamp()
	go func() {
		_, err := place.Write(ctx, stamp, begun)
		result <- err
	}()
	h.begun, h.result = begun, result
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

func (h *hand) finish() error {
	if h.begun == nil {
		return errors.New("there is no write to finish")
	}
	close(h.begun.allowed)
	return <-h.result
}

// end waits for the end of the lease. It returns why and when the lease ended.
// If Loss is empty, the lease has not ended in time.
func (h *hand) end(ctx context.Context, wait time.Duration) (reply, error) {
	if h.lease == nil {
		return reply{}, errors.New("there is no lease that could end")
	}
	patience := time.NewTimer(wait)
	defer patience.Stop()
	select {
	case <-patience.C:
		return reply{}, nil
	case <-h.lease.Done():
	case <-ctx.Done():
		return reply{}, context.Cause(ctx)
	}
	r := reply{At: h.endedAt(h.lease), Stall: h.stall.stop()}
	var lost *croft.LostError
	if errors.As(h.lease.Err(), &lost) {
		r.Loss = string(lost.Loss)
	}
	return r, nil
}

// endedAt is when the lease's context ended. The first caller sets it: the
// order that waits for the end, or the context's callback.
func (h *hand) endedAt(lease *croft.Lease) time.Time {
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended == nil {
		h.ended = map[*croft.Lease]time.Time{}
	}
	if _, noted := h.ended[lease]; !noted {
		h.ended[lease] = now
	}
	return h.ended[lease]
}
