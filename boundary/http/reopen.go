package httpfence

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

// openedNote begins the note of an operator's term that ends a closed one.
const openedNote = "opened: "

// ErrOpen is matched by the error of [Reopen] when there is nothing to open.
var ErrOpen = errors.New("the resource is not closed")

// Reopen opens a closed resource by hand, on behalf of an operator who knows that nothing sent to the service is still on its way: that is the one thing no program can
// find out. The store keeps who did so and why. prefix is the gates' LeasePrefix, "" for the default. If there is nothing to open, because a gate serves the
// resource or the last one ended well, the error matches [ErrOpen] and nothing changes.
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
	if err != nil && !errors.Is(err, croft.ErrUnfenced) { // gates name no guards in their leases
		return err
	}
	// A closed term stays closed to its end. If it is not the one that was ended, another gate has begun meanwhile: then this ends badly, too, and whoever follows waits.
	same := false
	if after, err := st.Get(ctx, key); err == nil {
		for i, term := range after.History {
			same = same || i > 0 && term.Token == t.Deed.Token && after.History[i-1].Token == rec.Token
		}
	}
	if _, err := client.Release(ctx, t.Deed, !same); err != nil {
		return fmt.Errorf("the operator's lease could not be given back, so the resource stays closed until that has lapsed and settled; try again then: %w", err)
	}
	if !same {
		return fmt.Errorf("%w any more: another gate took it at the same moment; look again", ErrOpen)
	}
	return nil
}

// openable says why a resource cannot be opened by hand, or nil.
func openable(rec tenure.Record, now time.Time) error {
	if rec.IsZero() {
		return fmt.Errorf("%w: nothing is remembered of it; see whether the name is right", ErrOpen)
	}
	if rec.Alive(now) {
		if strings.HasPrefix(rec.Progress, closedMark) {
			return nil
		}
		return fmt.Errorf("%w: %s serves it", ErrOpen, rec.Owner)
	}
	seen := rec
	seen.History = append(append([]tenure.Term(nil), rec.History...), tenure.Term{}) // as whoever comes next would find it
	left, believed := unsettled(seen)
	if !left {
		return fmt.Errorf("%w: nobody has it, and whoever had it last ended well", ErrOpen)
	}
	// A gate from which the key was taken by hand learns of it with its next renewal, at the latest when its own time is up.
	if known := rec.Deadline.Add(mostTTL); believed && now.Before(known) {
		return fmt.Errorf("%w key: it was taken from a gate by hand, which may not know yet; try again in %s", tenure.ErrHeld, known.Sub(now).Round(time.Second))
	}
	return nil
}
