package tenure

import (
	"fmt"
	"time"

	"github.com/croft-dev/croft/fence"
)

// Bid is an Acquire that waits for its turn, as a store may keep it and show it to others: all of it but the secret. Whoever frees the key can have it awarded in the same step; only who made the bid can use what it is granted.
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

// Check reports what is wrong with the bid, or nil.
func (b Bid) Check() error {
	if err := fence.CheckKey(b.Request.Key); err != nil {
		return err
	}
	if b.Request.Verb != Acquire || b.Request.Secret != "" || !b.Grant.Valid() {
		return fmt.Errorf("%w bid: it must be an Acquire with the fingerprint of its secret, and without the secret", fence.ErrInvalid)
	}
	return b.Request.check()
}

// Award is [Apply] for a bid: it decides what the law decides of the request that the bid was made of.
func Award(rec Record, b Bid, now time.Time) (next Record, changed bool, err error) {
	if err := b.Check(); err != nil {
		return rec, false, err
	}
	return apply(rec, b.Request, b.Grant, now)
}
