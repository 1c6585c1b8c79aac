package workcmd

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/croft-dev/croft/work"
)

// takenLedger is the ledger as the dispatcher uses it. It knows which effects
// the dispatcher has taken and not settled. A dispatcher that is told to end
// gives back what it has not yet sent, so --until-empty must wait for these.
type takenLedger struct {
	work.Ledger

	mu     sync.Mutex
	taking int                         // calls under way
	taken  map[work.EffectID]time.Time // until when the dispatcher may settle them
}

func newTakenLedger(l work.Ledger) *takenLedger {
	return &takenLedger{Ledger: l, taken: map[work.EffectID]time.Time{}}
}

// busy reports whether the dispatcher has effects, or may be getting some.
func (l *takenLedger) busy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for id, until := range l.taken {
		if !now.Before(until) {
			delete(l.taken, id)
		}
	}
	return l.taking > 0 || len(l.taken) > 0
}

// Take notes what the dispatcher takes.
func (l *takenLedger) Take(ctx context.Context, q work.Taking) ([]work.Effect, error) {
	until := time.Now().Add(q.Hold)
	l.mu.Lock()
	l.taking++
	l.mu.Unlock()
	effects, err := l.Ledger.Take(ctx, q)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taking--
	for _, e := range effects {
		l.taken[e.EffectID] = until
	}
	return effects, err
}

// Settle notes what the ledger knows to be settled, or refuses for good.
func (l *takenLedger) Settle(ctx context.Context, settlements []work.Settlement) []work.EffectAnswer {
	answers := l.Ledger.Settle(ctx, settlements)
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, a := range answers {
		if !errors.Is(a.Err, work.ErrUnknown) {
			delete(l.taken, settlements[i].Effect)
		}
	}
	return answers
}

// Wake passes on the ledger's hints, if it has any.
func (l *takenLedger) Wake(ctx context.Context, w work.Wanted) (<-chan struct{}, error) {
	if waker, can := l.Ledger.(work.Waker); can {
		return waker.Wake(ctx, w)
	}
	return nil, errors.ErrUnsupported
}
