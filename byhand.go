package croft

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/croft-dev/croft/tenure"
)

// ByHand says who acts on a key by hand, and why. The store keeps both.
type ByHand struct {
	// Actor is who acts. Default: Options.Owner.
	Actor string
	// Note is why. It is required.
	Note string
	// TTL is how long the operator's lease lasts, or the reservation. Default: 1 minute, for a reservation 10 minutes.
	TTL time.Duration
}

// Transfer is what an operator's act did.
type Transfer struct {
	// Deed is the operator's own: after a takeover it is the lease.
	Deed tenure.Deed
	// Before is the record as it was read just before the act, zero if there was none; Record is the one that stands now.
	Before, Record tenure.Record
	// Raised tells for every guard that the term before had named whether the fence is up there. It is empty if none was named.
	Raised []Raise
}

// Raise is the outcome of raising the fence at one resource.
type Raise struct {
	Target string
	Err    error // nil: raised
}

// Takeover takes the key for the operator, whoever holds it: the deed returned is a lease of the operator's, which this client does not renew. Every takeover
// burns a new token, and the fence is raised to it at the guards the holder had named, so that the holder's writes are refused from then on. What could
// not be raised is in Transfer.Raised and is not an error. Unknown outcomes are treated as by Renew.
func (c *Client) Takeover(ctx context.Context, key string, h ByHand) (*Transfer, error) {
	return c.byHand(ctx, h, tenure.Request{Verb: tenure.Takeover, Key: key, Owner: cmp.Or(h.Actor, c.o.Owner), Instance: c.o.Instance, TTL: cmp.Or(h.TTL, time.Minute)})
}

// Reserve ends whatever term the key is in and keeps it free for the named owner alone, until the reservation lapses. For the rest it is as Takeover.
func (c *Client) Reserve(ctx context.Context, key, owner string, h ByHand) (*Transfer, error) {
	return c.byHand(ctx, h, tenure.Request{Verb: tenure.Reserve, Key: key, Owner: owner, TTL: cmp.Or(h.TTL, 10*time.Minute)})
}

// Revoke ends whatever term the key is in and frees it for anybody. For the rest it is as Takeover.
func (c *Client) Revoke(ctx context.Context, key string, h ByHand) (*Transfer, error) {
	return c.byHand(ctx, h, tenure.Request{Verb: tenure.Revoke, Key: key})
}

func (c *Client) byHand(ctx context.Context, h ByHand, req tenure.Request) (*Transfer, error) {
	req.Secret = tenure.NewSecret()
	req.Actor, req.Note = cmp.Or(h.Actor, c.o.Owner), h.Note
	if err := req.Check(); err != nil {
		return nil, err
	}
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.leave()

	before, err := c.read(ctx, req.Key)
	if err != nil {
		return nil, err
	}
	r, err := c.ask(ctx, req, 2*c.o.CallTimeout)
	if err != nil {
		return nil, err
	}
	t := &Transfer{
		Deed:   tenure.Deed{Key: req.Key, Token: r.answer.Record.Token, Secret: req.Secret, TTL: req.TTL},
		Before: before, Record: r.answer.Record,
	}
	// The record keeps the guards of the term that was ended, in the same step: also of one that began after before was read.
	t.Raised = c.raiseAt(ctx, t.Deed.Stamp(), t.Record.Guards)
	return t, nil
}

// read is the record of a key as the store has it now. Nothing was changed if it fails.
func (c *Client) read(ctx context.Context, key string) (tenure.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.CallTimeout)
	defer cancel()
	rec, err := c.st.Get(ctx, key)
	if err != nil {
		return tenure.Record{}, fmt.Errorf("reading the record of %q: %w; nothing was changed", key, err)
	}
	return rec, nil
}
