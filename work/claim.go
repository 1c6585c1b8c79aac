package work

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// Claim asks for items to work on. The caller makes the secret before the
// request, one for the whole claim; it becomes the grant of every item that the
// claim takes. After a lost reply, claim again with the same secret and Again
// set.
type Claim struct {
	// Queues are the queues to claim from, at least one. Their items are
	// claimed in one common order: [Turns].
	Queues []string
	// Limit is the largest number of items to claim: 1 to MaxClaim.
	Limit int
	// Secret is new for every claim, from tenure.NewSecret.
	Secret tenure.Secret
	// Owner and Instance say who claims.
	Owner, Instance string
	// TTL is how long the ledger keeps an item for an owner that sends no
	// heartbeat.
	TTL time.Duration
	// Again says that the claim was sent before and its outcome is unknown. If
	// items run under its secret, the ledger returns those and takes no others.
	// If none does, it treats the claim like any other. Should the first
	// request arrive after that, nobody knows of the items it takes, and they
	// lapse.
	Again bool
}

// Check returns nil if the claim is valid, or an error that matches
// fence.ErrInvalid.
func (c Claim) Check() error {
	if len(c.Queues) == 0 {
		return fmt.Errorf("%w claim: it names no queue", fence.ErrInvalid)
	}
	for _, q := range c.Queues {
		if err := checkQueue(q); err != nil {
			return err
		}
	}
	if c.Limit < 1 || c.Limit > MaxClaim {
		return fmt.Errorf("%w claim of %d items: it must be between 1 and %d", fence.ErrInvalid, c.Limit, MaxClaim)
	}
	if !c.Secret.Valid() {
		return fmt.Errorf("%w secret: it must be 32 lower-case hex digits", fence.ErrInvalid)
	}
	if strings.TrimSpace(c.Owner) == "" {
		return fmt.Errorf("%w owner: it is empty; say who asks", fence.ErrInvalid)
	}
	if err := checkName("owner", c.Owner, tenure.MaxName); err != nil {
		return err
	}
	if err := checkName("instance", c.Instance, tenure.MaxName); err != nil {
		return err
	}
	return checkTTL(c.TTL)
}

// Grantable reports whether the claim may take the item at now. The item must
// wait in one of the claim's queues, and its Ready time must have come. It must
// not be reserved for another owner, and never have been granted to this
// secret.
func (c Claim) Grantable(it Item, now time.Time) bool {
	_, err := Grant(it, c, now)
	return err == nil
}

// Grant is the law of claiming one item: it returns the item as the ledger
// keeps it after the claim. A claim takes the first Limit items, in the order
// of [Turns], for which Grant returns no error and which the [Gate] of their
// queue admits. It skips items that another transaction has locked.
func Grant(it Item, c Claim, now time.Time) (Item, error) {
	if err := c.Check(); err != nil {
		return it, err
	}
	now = tenure.Time(now)
	switch {
	case it.State != Waiting || it.Ready.After(now):
		return it, &StateError{
			What: "claim", Of: "item " + string(it.ID), State: string(it.State),
			Why: "only a waiting item whose time has come can be claimed",
		}
	case !slices.Contains(c.Queues, it.Queue):
		return it, &StateError{
			What: "claim", Of: "item " + string(it.ID), State: string(it.State), Why: "it is in another queue",
		}
	}
	rec, changed, err := tenure.Apply(it.Record, tenure.Request{
		Verb: tenure.Acquire, Key: it.Key(), Secret: c.Secret, Owner: c.Owner, Instance: c.Instance, TTL: c.TTL,
	}, now)
	if err != nil {
		return it, err
	}
	if !changed {
		return it, fmt.Errorf("%w item %s: it waits and is held at once", fence.ErrInvalid, it.ID)
	}
	it.Record = rec
	it.State, it.Attempts = Running, it.Attempts+1
	return it, nil
}

// Granted reports whether the item runs under the claim's secret. A claim that
// is sent again gets those items.
func (c Claim) Granted(it Item) bool {
	return it.State == Running && it.Record.Grant == c.Secret.Grant() && slices.Contains(c.Queues, it.Queue)
}
