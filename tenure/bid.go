package tenure

import (
	"fmt"
	"time"

	"github.com/croft-dev/croft/fence"
)

// Bid is an Acquire that waits for its turn, without its secret. A store may
// keep bids and show them to others. The client that frees the key can award it
// to a bid in the same step. Only the client that made the bid has the secret
// and can use the grant.
type Bid struct {
	Request Request // without its secret
	Grant   fence.Grant
}

// Bid makes a bid of an Acquire.
func (q Request) Bid() Bid {
	b := Bid{Request: q, Grant: q.Secret.Grant()}
	b.Request.Secret = ""
	return b
}

// Check returns nil if the bid is well formed, and otherwise an error that
// matches [fence.ErrInvalid].
func (b Bid) Check() error {
	if err := fence.CheckKey(b.Request.Key); err != nil {
		return err
	}
	if b.Request.Verb != Acquire || b.Request.Secret != "" || !b.Grant.Valid() {
		return fmt.Errorf("%w bid: it must be an Acquire with the fingerprint of its secret, and without the secret",
			fence.ErrInvalid)
	}
	return b.Request.check()
}

// Award is [Apply] for a bid. It decides as Apply decides the request that the
// bid was made of.
func Award(rec Record, b Bid, now time.Time) (next Record, changed bool, err error) {
	if err := b.Check(); err != nil {
		return rec, false, err
	}
	return apply(rec, b.Request, b.Grant, now)
}
