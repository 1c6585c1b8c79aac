package steward

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/work"
)

// lane delivers the effects for one destination during one term of the lease.
// The package comment says which goroutines there are.
type lane struct {
	*session
	name    string
	to      Deliverer
	ordered bool
	events  chan any
	woken   chan struct{} // has room for one

	taken    []taken // not yet sent, oldest first
	inFlight int
	results  []result // not yet settled
	breaker  breaker

	taking, settling bool
	// since counts the deliveries that ended since the last taking began. The
	// next taking asks for twice as many.
	since int
	// takeAt is when to take again. It is in the future if the last taking
	// found less than it asked for.
	takeAt time.Time
	over   bool  // takes and sends nothing more
	failed error // the ledger has refused the dispatcher
	tries  int   // failed settlements since over
}

// taken is an effect that waits to be sent.
type taken struct {
	effect work.Effect
	// until is when the ledger calls it an orphan, by this clock.
	until time.Time
}

// result is how one delivery ended. Without a delivery, the effect is given
// back.
type result struct {
	taken
	settlement work.Settlement
	sent       bool
	err        error
	begun      time.Time
	took       time.Duration
}

// The events of a lane.
type (
	tookEvent struct {
		effects []work.Effect
		asked   int
		begun   time.Time
		err     error
	}
	settledEvent struct {
		results []result
		answers []work.EffectAnswer
	}
)

// lastTries is how often a lane tries to settle the rest at its end. Effects
// that the ledger never hears of become orphans, and are delivered again under
// the same identity.
const lastTries = 3

func newLane(s *session, name string) *lane {
	return &lane{
		session: s, name: name, to: s.to[name], ordered: s.inOrder(name),
		events: make(chan any, s.o.Slots+2), woken: make(chan struct{}, 1),
	}
}

// run delivers until ctx ends or the ledger refuses the dispatcher. Then it
// waits for the deliveries in flight. Their timeouts and the end of the lease
// bound the wait.
func (l *lane) run(ctx context.Context) error {
	ended := ctx.Done()
	for {
		now := time.Now()
		if !l.over && (ctx.Err() != nil || l.failed != nil) {
			l.over = true
			l.giveBack(0)
		}
		l.send(now)
		l.settle()
		l.take(now)
		if l.over && l.inFlight == 0 && !l.taking && !l.settling && len(l.results) == 0 {
			return l.failed
		}
		timer := time.NewTimer(max(l.next(now).Sub(now), 0))
		select {
		case e := <-l.events:
			l.on(e)
		case <-l.woken:
			l.takeAt = time.Time{}
		case <-timer.C:
		case <-ended:
			ended = nil
		}
		timer.Stop()
		for more := true; more; {
			select {
			case e := <-l.events:
				l.on(e)
			default:
				more = false
			}
		}
	}
}

// next is when the lane must look again if nothing happens.
func (l *lane) next(now time.Time) time.Time {
	at := now.Add(l.pollEvery())
	if !l.takeAt.IsZero() && l.takeAt.After(now) && l.takeAt.Before(at) {
		at = l.takeAt
	}
	if l.breaker.until.After(now) && l.breaker.until.Before(at) {
		at = l.breaker.until
	}
	return at
}

// on takes in one event.
func (l *lane) on(event any) {
	switch e := event.(type) {
	case result:
		l.onResult(e)
	case tookEvent:
		l.onTook(e)
	case settledEvent:
		l.onSettled(e)
	}
}

// want is how many effects the next taking asks for: twice as many as were
// delivered since the last one began. So a fast receiver gets large batches,
// and little of what was taken waits for a slow one.
func (l *lane) want(now time.Time) int {
	allowed := l.breaker.allows(now, l.o.Slots)
	if l.ordered {
		allowed = min(allowed, 1)
		return allowed - l.inFlight - len(l.taken)
	}
	if allowed < l.o.Slots { // paused, or one for a trial
		return allowed - l.inFlight - len(l.taken)
	}
	return min(max(l.o.Slots, 2*l.since), work.MaxClaim) - len(l.taken)
}

// take takes effects if half of those wanted are missing. It checks the lease
// just before: effects taken under a lease that has ended would only become
// unknown.
func (l *lane) take(now time.Time) {
	n := l.want(now)
	if l.over || l.taking || n <= 0 || n < len(l.taken) || now.Before(l.takeAt) || len(l.results) > work.MaxClaim {
		return
	}
	if l.lease.Err() != nil {
		return
	}
	l.taking, l.since = true, 0
	go func() {
		ctx, cancel := context.WithTimeout(l.lease.Context(), l.o.CallTimeout)
		defer cancel()
		effects, err := l.ledger.Take(ctx, work.Taking{
			Stamp: l.stamp, To: []string{l.name}, Ordered: l.ordered, Limit: n, Hold: l.o.hold(),
		})
		l.events <- tookEvent{effects, n, now, err}
	}()
}

func (l *lane) onTook(e tookEvent) {
	l.taking = false
	now := time.Now()
	switch {
	case refusal(e.err):
		l.failed = e.err
	case e.err != nil:
		l.log(slog.LevelWarn, "take_failed", slog.String("error", e.err.Error()))
		l.takeAt = now.Add(l.o.Poll)
	case len(e.effects) < e.asked && !l.ordered:
		l.takeAt = now.Add(l.pollEvery())
	case len(e.effects) == 0:
		l.takeAt = now.Add(l.pollEvery())
	default:
		l.takeAt = time.Time{}
	}
	for _, effect := range e.effects {
		l.taken = append(l.taken, taken{effect, e.begun.Add(l.o.hold())})
	}
	if l.over {
		l.giveBack(0)
	}
}

// send starts as many deliveries as it may. An effect that has waited so long
// that it might become an orphan is given back.
func (l *lane) send(now time.Time) {
	for !l.over && len(l.taken) > 0 && l.inFlight < l.breaker.allows(now, l.o.Slots) {
		next := l.taken[0]
		l.taken = l.taken[1:]
		if now.Add(l.o.Timeout + l.o.CallTimeout).After(next.until) {
			l.results = append(l.results, l.back(next, 0))
			continue
		}
		l.inFlight++
		go func() { l.events <- l.deliver(next) }()
	}
}

// deliver makes one delivery. Its context ends with the lease, so that nobody
// sends for long under a lease that another holds.
func (l *lane) deliver(t taken) result {
	ctx, cancel := context.WithTimeout(l.lease.Context(), l.o.Timeout)
	defer cancel()
	begun := time.Now()
	err := attempt(ctx, l.to, t.effect)
	return result{
		taken: t, sent: true, err: err, begun: begun, took: time.Since(begun),
		settlement: settlement(t.effect, err, l.stamp, l.o.Deliveries),
	}
}

// attempt calls Deliver and turns a panic into an error. Then it is unknown
// whether the effect was delivered.
func attempt(ctx context.Context, to Deliverer, e work.Effect) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return to.Deliver(ctx, e)
}

func (l *lane) onResult(r result) {
	l.inFlight--
	l.since++
	l.results = append(l.results, r)
	if l.lease.Err() != nil {
		return // the delivery may have ended with the lease
	}
	now := time.Now()
	paused := false
	switch known, pause := outcomeOf(r.err); {
	case pause > 0:
		paused = l.breaker.asked(now, pause)
	case known == delivered, known == refused:
		l.breaker.succeeded(now)
	default:
		paused = l.breaker.failed(r.begun, now)
	}
	if paused {
		l.pause(r.err, now)
	}
}

// pause gives back the effects that are not sent yet, and tells that the
// destination is paused.
func (l *lane) pause(why error, now time.Time) {
	d := l.breaker.until.Sub(now)
	l.giveBack(d)
	l.log(slog.LevelWarn, "destination_paused", slog.String("to", l.name), slog.Duration("pause", d),
		slog.String("why", why.Error()))
	if l.o.Paused != nil {
		l.observing.Lock()
		defer l.observing.Unlock()
		l.o.Paused(Pause{To: l.name, For: d, Err: why})
	}
}

// giveBack makes effects that were taken and not sent pending again, after d.
func (l *lane) giveBack(d time.Duration) {
	for _, t := range l.taken {
		l.results = append(l.results, l.back(t, d))
	}
	l.taken = nil
}

func (l *lane) back(t taken, d time.Duration) result {
	return result{taken: t, settlement: work.Settlement{
		Effect: t.effect.EffectID, Attempt: t.effect.Attempts, State: work.Pending, Delay: d, Error: t.effect.Error,
		Stamp: l.stamp,
	}}
}

// settle settles the collected results in one call. The lease may have ended.
// The results are sent all the same, and the ledger decides by the stamp
// whether they count.
func (l *lane) settle() {
	if l.settling || len(l.results) == 0 {
		return
	}
	results := l.results
	l.settling, l.results = true, nil
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(l.lease.Context()), l.o.CallTimeout)
		defer cancel()
		settlements := make([]work.Settlement, len(results))
		for i, r := range results {
			settlements[i] = r.settlement
		}
		l.events <- settledEvent{results, l.ledger.Settle(ctx, settlements)}
	}()
}

func (l *lane) onSettled(e settledEvent) {
	l.settling = false
	var open []result
	for i, r := range e.results {
		err := e.answers[i].Err
		if errors.Is(err, work.ErrUnknown) && time.Now().Before(r.until) {
			open = append(open, r)
		} else if r.sent {
			l.report(r, err)
		}
	}
	if l.ordered && len(open) == 0 {
		l.takeAt = time.Time{} // the next effect may be sent now
	}
	if len(open) > 0 && l.over {
		if l.tries++; l.tries >= lastTries {
			open = nil
		}
	}
	l.results = append(open, l.results...)
}

// refusal reports whether the ledger has refused the dispatcher.
func refusal(err error) bool {
	return errors.Is(err, fence.ErrStale) || errors.Is(err, fence.ErrCollision) || errors.Is(err, fence.ErrInvalid)
}
