package mcpservecmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/excerpt"
	"github.com/croft-dev/croft/internal/identity"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// monotonic is a clock that goes on while the machine sleeps.
var monotonic = clock.System()

// hands has the items that the agent may write to: those that it has claimed,
// and that of the lease around this process.
type hands struct {
	s          *server
	most       int
	ttl        time.Duration
	stallAfter time.Duration
	instance   string

	sending sync.Mutex // held while heartbeats are under way

	mu    sync.Mutex
	items []*inHand
	// unsure is a claim that may have taken an item, or nil. It is made again
	// before any other.
	unsure *work.Claim
}

// inHand is an item that the agent may write to.
type inHand struct {
	deed   tenure.Deed
	id     work.ID
	queue  string
	around bool          // somebody else keeps it alive, and ends it
	moved  clock.Instant // the last call about it
	ending bool          // a request to end it is under way
	lost   error         // why it is lost, or nil
}

// request returns a request of the item's owner.
func (it *inHand) request(verb work.Verb) work.Request {
	return work.Request{Verb: verb, ID: it.id, Token: it.deed.Token, Secret: it.deed.Secret}
}

// mostLost is how many lost items are remembered, so that calls about them are
// refused by the ledger and go on record.
const mostLost = 64

func newHands(s *server, f *flags) *hands {
	h := &hands{s: s, most: f.most, ttl: f.ttl, stallAfter: f.stallAfter, instance: identity.Instance()}
	if queue, id, err := work.ItemOf(s.lease); err == nil {
		h.items = append(h.items, &inHand{deed: s.lease, id: id, queue: queue, around: true})
	}
	return h
}

// errNotInHand answers a call about an item that this process has not claimed.
func errNotInHand(id string) error {
	return fmt.Errorf("%w: this process has not claimed the item %.40q, or has ended it", tenure.ErrNotOwned, id)
}

// find returns an item, and notes that the agent works on it.
func (h *hands) find(id string) (*inHand, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, it := range h.items {
		if string(it.id) == id {
			it.moved = monotonic.Now()
			return it, nil
		}
	}
	return nil, errNotInHand(id)
}

// all returns copies of what is known of the items.
func (h *hands) all() []inHand {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []inHand
	for _, it := range h.items {
		all = append(all, *it)
	}
	return all
}

// add adds a claimed item. It forgets an earlier claim of the same item, which
// has lapsed, and lost items of which there are too many.
func (h *hands) add(it work.Item, secret tenure.Secret) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.items = slices.DeleteFunc(h.items, func(other *inHand) bool { return other.id == it.ID })
	h.items = append(h.items, &inHand{deed: it.Deed(secret), id: it.ID, queue: it.Queue, moved: monotonic.Now()})
	lost := 0
	for i := len(h.items) - 1; i >= 0; i-- {
		if h.items[i].lost == nil {
			continue
		}
		if lost++; lost > mostLost {
			h.items = slices.Delete(h.items, i, i+1)
		}
	}
}

// remove forgets an item.
func (h *hands) remove(it *inHand) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.items = slices.DeleteFunc(h.items, func(other *inHand) bool { return other == it })
}

// room returns why the agent may not claim another item, or nil.
func (h *hands) room() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var have []work.ID
	for _, it := range h.items {
		if !it.around && it.lost == nil {
			have = append(have, it.id)
		}
	}
	if len(have) < h.most {
		return nil
	}
	return cli.Invalid("claim: you have %v, as many items as you may; complete, fail or release one first", have)
}

// claim returns a claim of one item.
func (h *hands) claim(queues []string, secret tenure.Secret) work.Claim {
	return work.Claim{
		Queues: queues, Limit: 1, Secret: secret, Owner: h.s.Actor(), Instance: h.instance, TTL: h.ttl,
	}
}

// take claims an item. If an earlier claim got no answer, it is made again.
func (h *hands) take(ctx context.Context, queues []string) (work.Item, error) {
	if err := h.room(); err != nil {
		return work.Item{}, err
	}
	c := h.claim(queues, tenure.NewSecret())
	if h.unsure != nil {
		c = *h.unsure
	}
	items, err := h.ask(ctx, &c)
	h.unsure = nil
	switch {
	case err != nil && c.Again:
		h.unsure = &c
		return work.Item{}, err
	case err != nil:
		return work.Item{}, err
	case len(items) == 0:
		return work.Item{}, fmt.Errorf("%w in %q", cli.ErrNothingReady, queues)
	}
	it := items[0]
	o := &work.FenceOptions{Raise: h.s.allowed, CallTimeout: h.s.Timeout}
	err = work.Fence(ctx, h.s.ledger, items, c.Secret, o)[0]
	if err == nil {
		err = ctx.Err() // the agent has cancelled the call, and will not learn of the item
	}
	if err == nil {
		h.add(it, c.Secret)
		return it, nil
	}
	back := work.Request{Verb: work.Release, ID: it.ID, Token: it.Record.Token, Secret: c.Secret}
	if ctx.Err() == nil {
		back.Delay, back.Error = work.UnfencedDelay, excerpt.Of(err.Error(), work.MaxError)
	}
	// Without an answer the item lapses.
	h.s.ledger.Apply(context.WithoutCancel(ctx), []work.Request{back})
	return work.Item{}, fmt.Errorf("item %s is given back: %w", it.ID, err)
}

// ask sends a claim, again and again for a while if there is no answer. Then it
// sets Again: the claim may have taken an item.
func (h *hands) ask(ctx context.Context, c *work.Claim) ([]work.Item, error) {
	ctx, cancel := context.WithTimeout(ctx, h.s.callTime())
	defer cancel()
	for pause := 50 * time.Millisecond; ; pause *= 2 {
		call, done := context.WithTimeout(ctx, h.s.Timeout)
		items, err := h.s.ledger.Claim(call, *c)
		done()
		if err == nil || !errors.Is(err, work.ErrUnknown) && ctx.Err() == nil || store.IsFault(err) {
			return items, err
		}
		c.Again = true
		if clock.Sleep(ctx, pause) != nil {
			return nil, store.Unknown(err)
		}
	}
}

// write sends a request about an item. The agent names it, or it is that of the
// lease around. ends says that the request ends the attempt.
func (h *hands) write(ctx context.Context, id string, req work.Request, ends bool) (work.Answer, error) {
	it, err := h.find(id)
	if err != nil {
		return work.Answer{}, err
	}
	req.ID, req.Token, req.Secret = it.id, it.deed.Token, it.deed.Secret
	if err := req.Check(); err != nil {
		return work.Answer{}, err
	}
	if ends {
		h.end(it, true)
	}
	answer := h.s.ledger.Apply(ctx, []work.Request{req})[0]
	switch {
	case errors.Is(answer.Err, work.ErrStale), errors.Is(answer.Err, work.ErrState),
		errors.Is(answer.Err, work.ErrNotFound), answer.Err == nil && ends:
		h.remove(it)
	case ends:
		h.end(it, false)
	}
	return answer, answer.Err
}

// end notes that an item is being ended, after the heartbeats under way.
func (h *hands) end(it *inHand, ending bool) {
	h.sending.Lock()
	defer h.sending.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	it.ending = ending
}

// keep sends heartbeats for the claimed items until ctx ends.
func (h *hands) keep(ctx context.Context) {
	tick := time.NewTicker(h.ttl / 4)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			h.beat(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// beat sends a heartbeat for every item on which the agent works.
func (h *hands) beat(ctx context.Context) {
	h.sending.Lock()
	defer h.sending.Unlock()
	var kept []*inHand
	var beats []work.Request
	h.mu.Lock()
	for _, it := range h.items {
		if it.around || it.ending || it.lost != nil || h.idle(it) {
			continue
		}
		kept = append(kept, it)
		beats = append(beats, it.request(work.Heartbeat))
	}
	h.mu.Unlock()
	if len(beats) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, min(h.s.Timeout, h.ttl/4))
	defer cancel()
	answers := h.s.ledger.Apply(ctx, beats)
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, answer := range answers {
		if answer.Err == nil || errors.Is(answer.Err, work.ErrUnknown) {
			continue // an item without an answer is kept by the next heartbeat, or lapses
		}
		kept[i].lost = answer.Err
		fmt.Fprintf(h.s.Stderr, "croft: %s: lost: %s\n", kept[i].id, cli.Line(h.s.Redact(answer.Err.Error())))
	}
}

// idle reports whether the agent has made no call about an item for too long.
// The ledger gives such an item to another, once the reconciler has seen it.
func (h *hands) idle(it *inHand) bool {
	return h.stallAfter > 0 && monotonic.Now().Sub(it.moved) >= h.stallAfter
}

// giveBack releases the claimed items. If the last claim got no answer, it
// first finds out whether that has taken one. No call may be under way.
func (h *hands) giveBack() {
	if c := h.unsure; c != nil {
		items, err := h.ask(context.Background(), c)
		for _, it := range items {
			h.add(it, c.Secret)
		}
		if err != nil {
			fmt.Fprintf(h.s.Stderr, "croft: a claim got no answer; if it has taken an item, that lapses after %s: %s\n",
				h.ttl, cli.Line(h.s.Redact(err.Error())))
		}
	}
	h.sending.Lock()
	defer h.sending.Unlock()
	var back []work.Request
	h.mu.Lock()
	for _, it := range h.items {
		if it.ending = true; !it.around && it.lost == nil {
			back = append(back, it.request(work.Release))
		}
	}
	h.mu.Unlock()
	if len(back) == 0 {
		return
	}
	for i, answer := range h.s.ledger.Apply(context.Background(), back) {
		say := "given back"
		if answer.Err != nil {
			say = "not given back: " + cli.Line(h.s.Redact(answer.Err.Error()))
		}
		fmt.Fprintf(h.s.Stderr, "croft: %s: %s\n", back[i].ID, say)
	}
}
