package steward

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
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
	// observing is held during calls of the caller's observers.
	observing sync.Mutex
}

// session is the dispatcher's work during one term of its lease. Each
// destination has a lane of its own.
type session struct {
	*dispatcher
	lease *croft.Lease
	stamp fence.Stamp
}

// term runs a session until ctx ends, with the caller's context or the lease.
func (d *dispatcher) term(ctx context.Context, lease *croft.Lease) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	s := &session{dispatcher: d, lease: lease, stamp: lease.Stamp()}
	d.log(slog.LevelInfo, "dispatcher_started", slog.Int64("token", int64(lease.Token())))
	lanes := make([]*lane, len(d.names))
	failed := make([]error, len(lanes))
	var all sync.WaitGroup
	for i, name := range d.names {
		l := newLane(s, name)
		lanes[i] = l
		all.Go(func() {
			if failed[i] = l.run(ctx); failed[i] != nil {
				end() // the ledger refuses all of them
			}
		})
	}
	d.hints(ctx, lanes)
	all.Wait()
	for _, err := range failed {
		if err != nil {
			return err // the others say the same
		}
	}
	return nil
}

// hints wakes the lanes when an effect may be due, if the ledger can tell.
// Hints that break begin again after a pause.
func (d *dispatcher) hints(ctx context.Context, lanes []*lane) {
	waker, can := d.ledger.(work.Waker)
	if !can {
		return
	}
	wake := func() {
		for _, l := range lanes {
			select {
			case l.woken <- struct{}{}:
			default: // a wake-up is pending already
			}
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
}

// withoutHints is the pause before asking for hints again after the ledger has
// said that it cannot give any. By then it may be reached in another way.
const withoutHints = 5 * time.Minute

// fewLanes is how many destinations are looked at in one Poll.
const fewLanes = 8

// pollEvery is the longest wait between two looks at one destination. Many
// destinations take turns, so that an idle dispatcher does not load the ledger.
func (d *dispatcher) pollEvery() time.Duration {
	return d.o.Poll * time.Duration(max(1, len(d.names)/fewLanes))
}

// inOrder reports whether a destination gets its effects in order.
func (d *dispatcher) inOrder(name string) bool { return slices.Contains(d.o.Ordered, name) }

// report logs a delivery and passes it to the observer.
func (d *dispatcher) report(r result, refused error) {
	if d.o.Observe != nil {
		d.observing.Lock()
		d.o.Observe(Delivery{
			Effect: r.effect, State: r.settlement.State, Took: r.took, Err: r.err, Refused: refused,
		})
		d.observing.Unlock()
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
	d.log(level, "delivery", attrs...)
}

func (d *dispatcher) log(level slog.Level, name string, attrs ...slog.Attr) {
	if d.o.Logger != nil {
		d.o.Logger.LogAttrs(context.Background(), level, name, attrs...)
	}
}
