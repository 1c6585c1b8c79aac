package croft

import (
	"context"
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
	// Before is the record that was replaced, zero if there was none; Record is the one that stands now.
	Before, Record tenure.Record
	// Raised tells for every guard named in Before whether the fence is up there.
	Raised []Raise
}

// Raise is the outcome of raising the fence at one resource.
type Raise struct {
	Target string
	Err    error // nil: raised
}

// Takeover takes the key for the operator, whoever holds it.
func (c *Client) Takeover(ctx context.Context, key string, h ByHand) (*Transfer, error) {
	return nil, ErrClosed
}

// Reserve frees the key for the named owner alone.
func (c *Client) Reserve(ctx context.Context, key, owner string, h ByHand) (*Transfer, error) {
	return nil, ErrClosed
}

// Revoke frees the key for anybody.
func (c *Client) Revoke(ctx context.Context, key string, h ByHand) (*Transfer, error) {
	return nil, ErrClosed
}
