package croft

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/engine"
	"github.com/croft-dev/croft/store/refusals"
	"github.com/croft-dev/croft/tenure"
)

// ByHand says who acts on a key by hand, and why. The store keeps both.
type ByHand struct {
	// Actor names the operator. Default: Options.Owner.
	Actor string
	// Note says why the operator acts. It is required.
	Note string
	// TTL is how long the operator's lease or the reservation lasts. Default: 1
	// minute, for a reservation 10 minutes.
	TTL time.Duration
	// Raise says where the fence may be raised, besides the store's own place.
	// The holder named the targets, and they are opened with the credentials of
	// this process: allow only what you would open yourself. Default: nowhere
	// else.
	Raise guard.Allowed
}

// Transfer reports what an operator's act did.
type Transfer struct {
	// Deed is the operator's own. After a takeover it is the deed of the
	// operator's lease.
	Deed tenure.Deed
	// Before is the record just before the act, zero if there was none. Record
	// is the record that the act made. If the act's answer was lost, its term
	// may already be over, because another was granted the key. Then
	// Record.Ended says how it ended.
	Before, Record tenure.Record
	// Raised has an entry for every guard that the term before had named. It
	// says whether the fence is up there, at the act's token or above. If it is
	// not known which guards were named, an entry with an error says so.
	Raised []Raise
}

// Raise is the outcome of raising the fence at one resource.
type Raise = guard.Raised

// Takeover takes the key for the operator, even from a holder. The returned
// deed is that of the operator's own lease, which this client does not renew.
//
// A takeover takes a new token. It raises the fence to that token at the guards
// that the holder had named, so that they refuse the holder's writes from then
// on. It opens only guards in the store's own place and those that h.Raise
// allows. If the fence is then not up at every guard, Takeover returns the
// transfer and an error that matches [ErrUnfenced]; Transfer.Raised has the
// reasons. If a guard remembers a token that the store has forgotten, the new
// token is above it.
//
// If the store does not answer, Takeover asks again as [Client.Renew] does.
func (c *Client) Takeover(ctx context.Context, key string, h ByHand) (*Transfer, error) {
	return c.byHand(ctx, h, tenure.Request{
		Verb: tenure.Takeover, Key: key, Owner: cmp.Or(h.Actor, c.o.Owner), Instance: c.o.Instance,
		TTL: cmp.Or(h.TTL, time.Minute),
	})
}

// Reserve ends the key's present term, if there is one. Until the reservation
// lapses, only the named owner can acquire the key. In all else it is like
// [Client.Takeover].
func (c *Client) Reserve(ctx context.Context, key, owner string, h ByHand) (*Transfer, error) {
	return c.byHand(ctx, h, tenure.Request{
		Verb: tenure.Reserve, Key: key, Owner: owner, TTL: cmp.Or(h.TTL, 10*time.Minute),
	})
}

// Revoke ends the key's present term, if there is one, and frees the key for
// anybody. In all else it is like [Client.Takeover].
func (c *Client) Revoke(ctx context.Context, key string, h ByHand) (*Transfer, error) {
	return c.byHand(ctx, h, tenure.Request{Verb: tenure.Revoke, Key: key})
}

func (c *Client) byHand(ctx context.Context, h ByHand, req tenure.Request) (*Transfer, error) {
	req.Actor, req.Note = cmp.Or(h.Actor, c.o.Owner), h.Note
	if err := refusals.CheckKey(req.Key); err != nil {
		return nil, err
	}
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.leave()
	req.Secret = tenure.NewSecret()
	if err := req.Check(); err != nil {
		return nil, err
	}
	before, err := c.read(ctx, req.Key)
	if err != nil {
		return nil, fmt.Errorf("%w; nothing was changed", err)
	}
	if highest := c.raiser(h.Raise).Highest(ctx, req.Key, before.Guards); highest > before.Token {
		// If this is not enough, raising the fence will say so.
		req.Above = min(highest, tenure.MaxAbove)
	}
	answer, err := c.ask(ctx, req, 2*c.o.CallTimeout)
	made, missed := answer.Record, fence.Token(0)
	if errors.Is(err, tenure.ErrNotOwned) {
		made, missed, err = c.overtaken(ctx, req, before, err)
	}
	if err != nil {
		return nil, err
	}
	t := &Transfer{
		Deed: tenure.Deed{
			Key: req.Key, Token: made.Token, Secret: req.Secret, TTL: req.TTL, Signature: answer.Signature,
		},
		Before: before, Record: made,
	}
	// In the same step, the record has kept the guards of the term that the act
	// ended, also if that term began after c.read.
	t.Raised = c.raiseNamed(ctx, t.Deed.Stamp(), t.Record.Guards, h.Raise)
	if missed != 0 {
		t.Raised = append(t.Raised, c.tellRaise(t.Deed.Stamp(),
			Raise{Target: fmt.Sprintf("guards of token %d", missed), Err: errMissed}))
	}
	return t, guard.Unfenced(t.Raised)
}

var errMissed = errors.New("another owner came just before this act, and the act's answer was lost; " +
	"which guards that owner named is not known")

// overtaken returns the record that an operator's act made, whose repetition
// the store has refused. It returns the refusal if that is not known.
func (c *Client) overtaken(
	ctx context.Context, req tenure.Request, before tenure.Record, refused error,
) (made tenure.Record, missed fence.Token, err error) {
	var refusal *tenure.NotOwnedError
	if !errors.As(refused, &refusal) {
		return tenure.Record{}, 0, refused
	}
	present := refusal.Record
	if len(present.History) == 0 { // an answer may lack the history
		if present, err = c.read(ctx, req.Key); err != nil {
			return tenure.Record{}, 0, errors.Join(refused, err)
		}
	}
	made, missed, known := engine.ActMade(req, before, present)
	if !known {
		return tenure.Record{}, 0, refused
	}
	return made, missed, nil
}

// read returns the key's present record.
func (c *Client) read(ctx context.Context, key string) (tenure.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.CallTimeout)
	defer cancel()
	rec, err := c.st.Get(ctx, key)
	if err != nil {
		return tenure.Record{}, fmt.Errorf("reading the record of %q: %w", key, err)
	}
	return rec, nil
}
