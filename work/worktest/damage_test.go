package worktest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/croft-dev/croft/internal/ledger"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/work"
)

// rot says which items of a ledger are damaged, and what the ledger does wrong
// about them.
type rot struct {
	ids                                 []work.ID // no call runs while it grows
	decides, grants, shows, ends, hides bool
}

func (r *rot) in(id work.ID) bool { return slices.Contains(r.ids, id) }

// under makes a law that decides nothing from a damaged item.
func (r *rot) under(law ledger.Law) ledger.Law {
	apply, grant := law.Apply, law.Grant
	law.Apply = func(it work.Item, req work.Request, now time.Time) (work.Outcome, error) {
		if r.in(it.ID) && !r.decides {
			return work.Outcome{Item: it}, store.Unknown(errors.New("damaged"))
		}
		return apply(it, req, now)
	}
	law.Grant = func(it work.Item, c work.Claim, now time.Time) (work.Item, error) {
		if r.in(it.ID) {
			if !r.grants {
				return it, errors.New("damaged")
			}
			it.State = work.Waiting
		}
		return grant(it, c, now)
	}
	return law
}

// rotten is a handle on a ledger that may have damaged items.
type rotten struct {
	*ledger.Ledger
	rot *rot
}

func (l rotten) Claim(ctx context.Context, c work.Claim) ([]work.Item, error) {
	items, err := l.Ledger.Claim(ctx, c)
	if !l.rot.shows && !l.rot.grants {
		items = slices.DeleteFunc(items, func(it work.Item) bool { return l.rot.in(it.ID) })
	}
	return items, err
}

func (l rotten) List(ctx context.Context, q work.Query) iter.Seq2[work.Item, error] {
	return func(yield func(work.Item, error) bool) {
		for it, err := range l.Ledger.List(ctx, q) {
			if err == nil && l.rot.in(it.ID) {
				if l.rot.hides {
					continue
				}
				it, err = work.Item{}, store.Unknown(fmt.Errorf("item %s is damaged", it.ID))
			}
			if !yield(it, err) || err != nil && l.rot.ends {
				return
			}
		}
	}
}

// damageFlaws are about damaged items.
func damageFlaws() []flaw {
	return []flaw{
		{name: "decides from a damaged item", group: "damaged", rot: rot{decides: true}},
		{name: "grants a damaged item", group: "damaged", rot: rot{grants: true}},
		{name: "gives a damaged item to who claims again", group: "damaged", rot: rot{shows: true}},
		{name: "ends a listing at a damaged item", group: "damaged", rot: rot{ends: true}},
		{name: "leaves a damaged item out of listings", group: "damaged", rot: rot{hides: true}},
	}
}
