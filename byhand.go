package croft

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/store/refusals"
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
	// Raise is where the fence may be raised besides the store's own place.
	// The targets are those that the holder named. They are opened with the
	// credentials of this process: allow only what you would open yourself.
	// Default: nowhere else.
	Raise guard.Allowed
}

// Transfer is what an operator's act did.
type Transfer struct {
	// Deed is the operator's own: after a takeover it is the lease.
	Deed tenure.Deed
	// Before is the record as it was read just before the act, zero if there was none; Record is the one that the act made. If that is over already, because
	// the act's answer was lost and another was granted the key before it was known, Ended says how.
	Before, Record tenure.Record
	// Raised tells for every guard that the term before had named whether the
	// fence is up there, at the act's token or above. It is empty if none was
	// named. If nobody remembers which they were, it says so in an entry with an
	// error.
	Raised []Raise
}

// Raise is the outcome of raising the fence at one resource.
type Raise struct {
	Target string
	Err    error // nil: raised
}

// Takeover takes the key for the operator, whoever holds it. The deed returned
// is a lease of the operator's, which this client does not renew.
//
// Every takeover burns a new token. The fence is raised to it at the guards
// that the holder had named, so that the holder's writes are refused from then
// on: at those in the store's own place, and at those that h.Raise allows. If
// it is not up at one of them afterwards, Takeover returns the transfer and an
// error that matches [ErrUnfenced]; Transfer.Raised has the reasons. If a guard
// remembers a token that the store has forgotten, the new token is above it.
// Unknown outcomes are treated as by Renew.
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
		return nil, err
	}
	if highest := c.raiser(h.Raise).Highest(ctx, req.Key, before.Guards); highest > before.Token {
		req.Above = min(highest, tenure.MaxAbove) // raising the fence tells where that is not enough
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
		Deed:   tenure.Deed{Key: req.Key, Token: made.Token, Secret: req.Secret, TTL: req.TTL},
		Before: before, Record: made,
	}
	// The record keeps the guards of the term that was ended, in the same step: also of one that began after before was read.
	t.Raised = c.raiseNamed(ctx, t.Deed.Stamp(), t.Record.Guards, h.Raise)
	if missed != 0 {
		t.Raised = append(t.Raised, c.tellRaise(t.Deed.Stamp(), Raise{Target: fmt.Sprintf("guards of token %d", missed), Err: errMissed}))
	}
	return t, unfenced(t.Raised)
}

var errMissed = errors.New("another owner came just before this act, and the act's answer was lost; which guards that owner named is not known")

// overtaken is the record that an operator's act made, though its answer was
// lost and its term was over when it was asked for again. The law answers "not
// owned" only to an act that was done. It is the refusal if the act is no
// longer among those the record remembers. If the act ended another term than
// before's, missed is the token of that term: nobody remembers its guards.
func (c *Client) overtaken(ctx context.Context, req tenure.Request, before tenure.Record, refused error) (made tenure.Record, missed fence.Token, err error) {
	var refusal *tenure.NotOwnedError
	if !errors.As(refused, &refusal) {
		return tenure.Record{}, 0, refused
	}
	now := refusal.Record
	if len(now.History) == 0 { // an answer need not bring it
		bounded, cancel := context.WithTimeout(ctx, c.o.CallTimeout)
		defer cancel()
		if now, err = c.st.Get(bounded, req.Key); err != nil {
			return tenure.Record{}, 0, errors.Join(refused, err)
		}
	}
	for i, term := range now.History {
		if term.Grant != req.Secret.Grant() {
			continue
		}
		if i > 0 && now.History[i-1].Token != before.Token {
			missed = now.History[i-1].Token
		}
		made = tenure.Record{
			Key: req.Key, Token: term.Token, Grant: term.Grant, Owner: term.Owner, Instance: term.Instance, State: term.State, Cause: term.Cause, Ended: term.Ended,
			Actor: term.Actor, Note: term.Note, Acquired: term.Acquired, Renewed: term.Acquired, Deadline: term.Acquired.Add(req.TTL), TTL: req.TTL,
			Guards: slices.Clone(before.Guards),
		}
		for _, target := range now.Guards { // of whoever followed, or still those of the term that was ended
			if !slices.Contains(made.Guards, target) {
				made.Guards = append(made.Guards, target)
			}
		}
		return made, missed, nil
	}
	return tenure.Record{}, 0, refused
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
