package admission

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// openedNote begins the note of an operator's term that Reopen made.
const openedNote = "opened: "

// ErrOpen is matched by the error of [Reopen] if there is nothing to open.
var ErrOpen = errors.New("the resource is not closed")

// Reopen opens a closed resource for an operator. The operator must know that
// nothing sent to the service is still on its way: no program can find that
// out. The store keeps who did so and why. The prefix is the LeasePrefix of the
// gates, or "" for the default.
//
// If a gate serves the resource, or the last one ended well, there is nothing
// to open. Then the error matches [ErrOpen] and nothing changes.
func Reopen(ctx context.Context, client *croft.Client, prefix, resource string, h croft.ByHand) error {
	if prefix == "" {
		prefix = DefaultLeasePrefix
	}
	key, st := prefix+resource, client.Store()
	rec, err := st.Get(ctx, key)
	if err != nil {
		return fmt.Errorf("reading the record of %q: %w; nothing was changed", key, store.Unknown(err))
	}
	now, err := st.Now(ctx)
	if err != nil {
		return fmt.Errorf("reading the store's clock: %w; nothing was changed", store.Unknown(err))
	}
	if err := openable(rec, now); err != nil {
		return err
	}
	if h.Note != "" {
		h.Note = openedNote + h.Note
	}
	t, err := client.Takeover(ctx, key, h)
	if err != nil && !errors.Is(err, croft.ErrUnfenced) { // the leases of gates have no guards to raise
		return err
	}
	// A closed term stays closed to its end. If the takeover ended a newer
	// term, another gate has begun meanwhile. Then this term ends as a failure,
	// and the next gate waits.
	same := false
	if after, err := st.Get(ctx, key); err == nil {
		for i, term := range after.History {
			same = same || i > 0 && term.Token == t.Deed.Token && after.History[i-1].Token == rec.Token
		}
	}
	if _, err := client.Release(ctx, t.Deed, !same); err != nil {
		return fmt.Errorf("the operator's lease could not be given back, "+
			"so the resource stays closed until that has lapsed and settled; try again then: %w", err)
	}
	if !same {
		return fmt.Errorf("%w any more: another gate took it at the same moment; look again", ErrOpen)
	}
	return nil
}

// openable returns nil if an operator may open the resource, or the reason why
// not.
func openable(rec tenure.Record, now time.Time) error {
	if rec.IsZero() {
		return fmt.Errorf("%w: nothing is remembered of it; see whether the name is right", ErrOpen)
	}
	if rec.Alive(now) {
		if strings.HasPrefix(rec.Progress, ClosedMark) {
			return nil
		}
		return fmt.Errorf("%w: %s serves it", ErrOpen, rec.Owner)
	}
	seen := rec
	// Look at the record as the next gate would find it.
	seen.History = append(append([]tenure.Term(nil), rec.History...), tenure.Term{})
	left, believed := unsettled(seen)
	if !left {
		return fmt.Errorf("%w: nobody has it, and whoever had it last ended well", ErrOpen)
	}
	// A gate that lost the key to an operator learns of it with its next
	// renewal, or at the latest when its lease has run out.
	if known := rec.Deadline.Add(mostTTL); believed && now.Before(known) {
		return fmt.Errorf("%w key: it was taken from a gate by hand, which may not know yet; try again in %s",
			tenure.ErrHeld, known.Sub(now).Round(time.Second))
	}
	return nil
}
