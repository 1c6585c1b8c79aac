package cli

import (
	"context"
	"errors"
	"testing"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// says is a check with a fixed answer.
type says struct{ err error }

func (s says) Check(context.Context, fence.Stamp) error { return s.err }

// TestAKeyThatLooksLikeAnItemMayBeALease: the ledger is asked first. If it does
// not know the key, or does not answer, the leases can still tell the owner.
func TestAKeyThatLooksLikeAnItemMayBeALease(t *testing.T) {
	item := fence.Stamp{Key: "builds/0123456789abcdef0123456789abcdef", Token: 1}
	lease := fence.Stamp{Key: "builds/nightly", Token: 1}
	down := store.Unknown(errors.New("it does not answer"))
	none := &tenure.NotOwnedError{Why: tenure.WhyUnknown}
	replaced := &tenure.NotOwnedError{Why: tenure.WhySuperseded, Record: tenure.Record{Key: item.Key}}
	for _, c := range []struct {
		name          string
		stamp         fence.Stamp
		items, leases error
		want          error
	}{
		{"the item's owner", item, nil, none, nil},
		{"a replaced owner of the item", item, replaced, nil, replaced},
		{"the owner of a lease", item, none, nil, nil},
		{"a replaced owner of a lease", item, none, replaced, replaced},
		{"the owner of a lease while the ledger is down", item, down, nil, nil},
		{"a stranger while the ledger is down", item, down, none, down},
		{"anybody while the leases are down", item, none, down, down},
		{"the item's owner while the leases are down", item, nil, down, nil},
		{"a key that is no item's", lease, replaced, nil, nil},
	} {
		got := LeasesOrItems{Leases: says{c.leases}, Items: says{c.items}}.Check(t.Context(), c.stamp)
		if !errors.Is(got, c.want) || (got == nil) != (c.want == nil) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	if err := (LeasesOrItems{Leases: says{nil}}).Check(t.Context(), item); err != nil {
		t.Errorf("without a ledger: %v", err)
	}
}
