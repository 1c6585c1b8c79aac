package workcmd

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/work"
)

// TestADispatcherSaysOnceWhyNothingIsDelivered: it repeats the reason after an
// hour. Deliveries go to stdout only.
func TestADispatcherSaysOnceWhyNothingIsDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said strings.Builder
		log := slog.New(&dispatchLog{app: &app{&cli.App{Stderr: &said}}})
		for hour := range 2 {
			log.Info("dispatcher_started", "token", 7)
			for range 3 {
				log.Warn("dispatcher_stopped", "error", errors.New("postgres://ann:hunter2@db/app: stale"))
				log.Warn("delivery", "error", "no such customer")
			}
			if got := said.String(); strings.Count(got, "\n") != hour+1 || !strings.Contains(got, "stale") || strings.Contains(got, "hunter2") {
				t.Errorf("in hour %d it says %q", hour, got)
			}
			time.Sleep(time.Hour)
		}
	})
}

// TestADispatcherThatIsToEndDoesSoBelowAMadeUpMark: nothing can ever be
// delivered under its key, so it ends. Other errors may pass.
func TestADispatcherThatIsToEndDoesSoBelowAMadeUpMark(t *testing.T) {
	var said strings.Builder
	var ended error
	log := slog.New(&dispatchLog{app: &app{&cli.App{Stderr: &said}}, stuck: func(err error) { ended = err }})
	log.Warn("dispatcher_stopped", "error", fence.ErrStale)
	if ended != nil {
		t.Errorf("it ends with %v", ended)
	}
	log.Warn("dispatcher_stopped", "error", fmt.Errorf("the key: %w", fence.ErrAhead))
	if !errors.Is(ended, fence.ErrAhead) || strings.Count(said.String(), "\n") != 1 {
		t.Errorf("it ends with %v, and says %q", ended, said.String())
	}
}

// outbox is a ledger with one effect.
type outbox struct {
	work.Ledger
	work.Effect
}

func (o *outbox) Now(context.Context) (time.Time, error) { return time.Now(), nil }

func (o *outbox) Effects(_ context.Context, q work.EffectQuery) iter.Seq2[work.Effect, error] {
	return func(yield func(work.Effect, error) bool) {
		if q.Selects(o.Effect, time.Now()) {
			yield(o.Effect, nil)
		}
	}
}

func (o *outbox) Take(_ context.Context, q work.Taking) ([]work.Effect, error) {
	o.Effect = work.Take(o.Effect, q, time.Now())
	return []work.Effect{o.Effect}, nil
}

func (o *outbox) Settle(_ context.Context, all []work.Settlement) []work.EffectAnswer {
	out, err := work.Settle(o.Effect, fence.Mark{}, all[0], time.Now())
	o.Effect = out.Effect
	return []work.EffectAnswer{{Err: err}}
}

// TestUntilEmptyWaitsForEffectsThatWereTaken: the dispatcher has taken the last
// effect, and not yet sent it. If it were told to end now, it would give the
// effect back, and nobody would deliver it.
func TestUntilEmptyWaitsForEffectsThatWereTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &app{&cli.App{Timeout: time.Minute}}
		l := newTakenLedger(&outbox{Effect: work.Effect{
			EffectID: work.EffectID{Item: work.NewID(), Name: "mail"}, To: "mail", State: work.Pending,
		}})
		want := func(open bool, when string) {
			t.Helper()
			if got, err := a.deliverable(t.Context(), l, []string{"mail"}); err != nil || got != open {
				t.Errorf("%s: there is something to deliver: %t, %v; want %t", when, got, err, open)
			}
		}
		want(true, "before")
		stamp := fence.Stamp{Key: "d", Token: 1}
		take := func() work.Effect {
			got, err := l.Take(t.Context(), work.Taking{Stamp: stamp, Limit: 1, Hold: time.Hour})
			if err != nil || len(got) != 1 {
				t.Fatal(got, err)
			}
			want(true, "taken")
			return got[0]
		}
		e := take()
		s := work.Settlement{
			Effect: e.EffectID, Attempt: e.Attempts, State: work.Pending, Delay: time.Minute, Actor: "a", Note: "n",
		}
		if answer := l.Settle(t.Context(), []work.Settlement{s})[0]; answer.Err != nil {
			t.Fatal(answer.Err)
		}
		want(false, "waits for a later attempt")
		take()
		time.Sleep(time.Hour)
		want(false, "an orphan")
	})
}
