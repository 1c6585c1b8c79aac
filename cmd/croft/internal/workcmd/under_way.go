package workcmd

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/croft-dev/croft/work"
)

// underWay is a ledger that knows which effects a dispatcher has taken through
// it and not settled. The dispatcher gives back what it has not sent when its
// context ends. So --until-empty must not end the context before.
type underWay struct {
	work.Ledger

	mu     sync.Mutex
	taking int                         // calls of Take
	until  map[work.EffectID]time.Time // when the ledger calls a taken effect an orphan
}

func newUnderWay(l work.Ledger) *underWay {
	return &underWay{Ledger: l, until: map[work.EffectID]time.Time{}}
}

func (u *underWay) Take(ctx context.Context, t work.Taking) ([]work.Effect, error) {
	u.mu.Lock()
	u.taking++
	u.mu.Unlock()
	until := time.Now().Add(t.Hold)
	effects, err := u.Ledger.Take(ctx, t)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.taking--
	for _, e := range effects {
		u.until[e.EffectID] = until
	}
	return effects, err
}

func (u *underWay) Settle(ctx context.Context, all []work.Settlement) []work.EffectAnswer {
	answers := u.Ledger.Settle(ctx, all)
	u.mu.Lock()
	defer u.mu.Unlock()
	for i, a := range answers {
		if !errors.Is(a.Err, work.ErrUnknown) { // else the dispatcher asks again
			delete(u.until, all[i].Effect)
		}
	}
	return answers
}

// Wake passes on the hints of the ledger, if it gives any.
func (u *underWay) Wake(ctx context.Context, w work.Wanted) (<-chan struct{}, error) {
	waker, can := u.Ledger.(work.Waker)
	if !can {
		return nil, errors.ErrUnsupported
	}
	return waker.Wake(ctx, w)
}

// any reports whether an effect is under way.
func (u *underWay) any() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	for id, until := range u.until {
		if now.After(until) {
			delete(u.until, id)
		}
	}
	return u.taking+len(u.until) > 0
}
