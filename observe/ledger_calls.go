package observe

import (
	"context"
	"errors"
	"time"

	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/work"
)

// Ledger returns the ledger with its calls counted and timed. From then on the
// metrics also show its open items and effects, if it is a [work.Surveyor].
// Operations in a caller's own transaction are not counted.
func (m *LedgerMetrics) Ledger(l work.Ledger) work.Ledger {
	if surveyor, can := l.(work.Surveyor); can {
		m.of(surveyor)
	}
	return &timedLedger{l, m}
}

// timedLedger counts and times the calls of workers, reconcilers and
// dispatchers.
type timedLedger struct {
	work.Ledger
	m *LedgerMetrics
}

// time observes one call, which began at a time and ended with err.
func (l *timedLedger) time(call string, begun time.Time, err error) {
	outcome := "ok"
	switch {
	case errors.Is(err, work.ErrUnknown) && !errors.Is(err, work.ErrInvalid):
		outcome = unknownOutcome
	case err != nil:
		outcome = refused
	}
	l.m.calls.WithLabelValues(call, outcome).Observe(time.Since(begun).Seconds())
}

// Apply carries out requests.
func (l *timedLedger) Apply(ctx context.Context, requests []work.Request) []work.Answer {
	begun := time.Now()
	answers := l.Ledger.Apply(ctx, requests)
	var failed error
	for i, a := range answers {
		if errors.Is(a.Err, work.ErrUnknown) {
			failed = a.Err
		}
		if i < len(requests) {
			l.m.answered(requests[i], a)
		}
	}
	l.time("apply", begun, failed)
	return answers
}

// Claim takes items.
func (l *timedLedger) Claim(ctx context.Context, c work.Claim) ([]work.Item, error) {
	begun := time.Now()
	items, err := l.Ledger.Claim(ctx, c)
	l.time("claim", begun, err)
	return items, err
}

// Take takes effects.
func (l *timedLedger) Take(ctx context.Context, q work.Taking) ([]work.Effect, error) {
	begun := time.Now()
	effects, err := l.Ledger.Take(ctx, q)
	l.time("take", begun, err)
	return effects, err
}

// Settle carries out settlements.
func (l *timedLedger) Settle(ctx context.Context, settlements []work.Settlement) []work.EffectAnswer {
	begun := time.Now()
	answers := l.Ledger.Settle(ctx, settlements)
	var failed error
	for _, a := range answers {
		if errors.Is(a.Err, work.ErrUnknown) {
			failed = a.Err
		}
	}
	l.time("settle", begun, failed)
	return answers
}

// Wake passes on the ledger's hints, if it has any.
func (l *timedLedger) Wake(ctx context.Context, w work.Wanted) (<-chan struct{}, error) {
	if waker, can := l.Ledger.(work.Waker); can {
		return waker.Wake(ctx, w)
	}
	return nil, errors.ErrUnsupported
}

// Guard opens guards in the ledger's own place, if it has any.
func (l *timedLedger) Guard(ctx context.Context, target string) (guard.Guard, error) {
	if host, can := l.Ledger.(guard.Host); can {
		return host.Guard(ctx, target)
	}
	return nil, guard.ErrElsewhere
}

// Backlog counts open items and effects, if the ledger can.
func (l *timedLedger) Backlog(ctx context.Context, stallAfter time.Duration) (work.Backlog, error) {
	if surveyor, can := l.Ledger.(work.Surveyor); can {
		return surveyor.Backlog(ctx, stallAfter)
	}
	return work.Backlog{}, errors.ErrUnsupported
}
