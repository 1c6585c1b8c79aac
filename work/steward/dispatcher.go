package steward

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	croft "github.com/croft-dev/croft"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/work"
)

// dispatcher delivers effects during the terms of its lease.
type dispatcher struct {
	ledger work.Ledger
	to     map[string]Deliverer
	names  []string
	o      DispatchOptions
}

// session is the dispatcher's work during one term of its lease.
type session struct {
	*dispatcher
	lease    *croft.Lease
	stamp    fence.Stamp
	results  chan result
	inFlight int
	settle   []result // not yet settled in the ledger
}

type result struct {
	effect     work.Effect
	settlement work.Settlement
	err        error
	took       time.Duration
	until      time.Time // when to stop settling it: then the effect is an orphan
}

// lastTries is how often the session tries to settle the rest at its end.
// Effects that the ledger never hears of become orphans, and are delivered
// again under the same identity.
const lastTries = 3

// term runs a session until ctx ends, with the caller's context or the lease.
func (d *dispatcher) term(ctx context.Context, lease *croft.Lease) error {
	s := &session{dispatcher: d, lease: lease, stamp: lease.Stamp(), results: make(chan result, d.o.Slots)}
	hints := d.hints(ctx)
	d.log(slog.LevelInfo, "dispatcher_started", slog.Int64("token", int64(lease.Token())))
	var failed error
	for ctx.Err() == nil {
		full := false
		if free := d.o.Slots - s.inFlight; free > 0 {
			n, err := s.take(free)
			if refusal(err) {
				failed = err
				break
			}
			if err != nil {
				d.log(slog.LevelWarn, "take_failed", slog.String("error", err.Error()))
			}
			full = n == free
		}
		if full && s.inFlight < d.o.Slots {
			continue
		}
		s.wait(ctx, hints)
		s.settleAll()
	}
	// Wait for the deliveries in flight. Their timeouts and the end of the
	// lease bound the wait.
	for s.inFlight > 0 {
		s.gather(<-s.results)
		s.settleAll()
	}
	for try := 0; try < lastTries && len(s.settle) > 0; try++ {
		s.settleAll()
	}
	return failed
}

// refusal reports whether the ledger has refused the dispatcher.
func refusal(err error) bool {
	return errors.Is(err, fence.ErrStale) || errors.Is(err, fence.ErrCollision) || errors.Is(err, fence.ErrInvalid)
}

// hints returns a channel that receives when an effect may be due. It is nil if
// the ledger cannot tell. Hints that break begin again after a pause.
func (d *dispatcher) hints(ctx context.Context) <-chan struct{} {
	waker, can := d.ledger.(work.Waker)
	if !can {
		return nil
	}
	woken := make(chan struct{}, 1)
	wake := func() {
		select {
		case woken <- struct{}{}:
		default: // a wake-up is pending already
		}
	}
	go func() {
		for ctx.Err() == nil {
			pause := d.o.Poll
			hints, err := waker.Wake(ctx, work.Wanted{Effects: true})
			if errors.Is(err, errors.ErrUnsupported) {
				pause = max(pause, withoutHints)
			}
			if err == nil {
				wake() // effects may have been written before the hints began
				for range hints {
					wake()
				}
			}
			_ = clock.Sleep(ctx, pause)
		}
	}()
	return woken
}

// withoutHints is the pause before asking for hints again after the ledger has
// said that it cannot give any. By then it may be reached in another way.
const withoutHints = 5 * time.Minute

// take takes effects and starts their deliveries. It checks the lease just
// before: effects taken under a lease that has ended would only become unknown.
func (s *session) take(n int) (int, error) {
	if err := s.lease.Err(); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(s.lease.Context(), s.o.CallTimeout)
	defer cancel()
	effects, err := s.ledger.Take(ctx, work.Taking{Stamp: s.stamp, To: s.names, Limit: n, Hold: s.o.hold()})
	if err != nil {
		return 0, err
	}
	for _, e := range effects {
		s.inFlight++
		go s.deliver(e)
	}
	return len(effects), nil
}

// deliver makes one delivery. Its context ends with the lease, so that nobody
// sends for long under a lease that another holds.
func (s *session) deliver(e work.Effect) {
	ctx, cancel := context.WithTimeout(s.lease.Context(), s.o.Timeout)
	defer cancel()
	begun := time.Now()
	err := attempt(ctx, s.to[e.To], e)
	s.results <- result{
		effect: e, err: err, took: time.Since(begun),
		settlement: settlement(e, err, s.stamp, s.o.Deliveries), until: begun.Add(s.o.hold()),
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

// wait returns when a delivery ends, an effect may be due, or Poll has passed.
func (s *session) wait(ctx context.Context, hints <-chan struct{}) {
	timer := time.NewTimer(s.o.Poll)
	defer timer.Stop()
	select {
	case r := <-s.results:
		s.gather(r)
	case <-hints:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// gather collects a result, and all others that have arrived.
func (s *session) gather(r result) {
	for {
		s.inFlight--
		s.settle = append(s.settle, r)
		select {
		case r = <-s.results:
		default:
			return
		}
	}
}

// settleAll settles the collected results in one call. Those without an answer
// stay for the next call.
func (s *session) settleAll() {
	if len(s.settle) == 0 {
		return
	}
	// The lease may have ended. The results are sent all the same, and the
	// ledger decides by the stamp whether they count.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.lease.Context()), s.o.CallTimeout)
	defer cancel()
	settlements := make([]work.Settlement, len(s.settle))
	for i, r := range s.settle {
		settlements[i] = r.settlement
	}
	var open []result
	for i, a := range s.ledger.Settle(ctx, settlements) {
		r := s.settle[i]
		if errors.Is(a.Err, work.ErrUnknown) && time.Now().Before(r.until) {
			open = append(open, r)
			continue
		}
		s.report(r, a.Err)
	}
	s.settle = open
}

// report logs a delivery and passes it to the observer.
func (s *session) report(r result, refused error) {
	if s.o.Observe != nil {
		s.o.Observe(Delivery{
			Effect: r.effect, State: r.settlement.State, Took: r.took, Err: r.err, Refused: refused,
		})
	}
	level := slog.LevelInfo
	attrs := []slog.Attr{
		slog.String("effect", r.effect.EffectID.String()), slog.String("to", r.effect.To),
		slog.String("state", string(r.settlement.State)),
		slog.Int("attempt", r.effect.Attempts), slog.Duration("took", r.took),
	}
	if r.err != nil {
		level = slog.LevelWarn
		attrs = append(attrs, slog.String("error", r.err.Error()))
	}
	if refused != nil {
		level = slog.LevelWarn
		attrs = append(attrs, slog.String("refused", refused.Error()))
	}
	s.log(level, "delivery", attrs...)
}

func (d *dispatcher) log(level slog.Level, name string, attrs ...slog.Attr) {
	if d.o.Logger != nil {
		d.o.Logger.LogAttrs(context.Background(), level, name, attrs...)
	}
}
