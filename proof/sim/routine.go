package sim

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/cas"
	"github.com/croft-dev/croft/tenure"
)

// routine is one call of store/cas, as a coroutine. It stops at every operation
// of its register. It goes on when the simulation has carried out the
// operation, so there is only one thread.
type routine struct {
	ctx     context.Context
	cancel  context.CancelFunc
	began   time.Duration
	request tenure.Request
	answer  store.Answer

	next  func() (*operation, bool)
	stop  func()
	yield func(*operation) bool
	asked *operation // the operation whose result it waits for
	over  bool
}

// operation is a request of a register. The simulation calls do, which calls
// finish when the result is there.
type operation struct{ do func(finish func()) }

// errGone ends the operations of a dead process.
var errGone = errors.New("the call has ended")

type routineKey struct{}

// newRoutine makes a call that carries out a request. step runs it.
func newRoutine(st *cas.Store, req tenure.Request, now time.Duration) *routine {
	return coroutine(now, req, func(rt *routine) { rt.answer = cas.Do(rt.ctx, st, req) })
}

// newSweep makes a call that drops old records.
func newSweep(st *cas.Store, now time.Duration) *routine {
	return coroutine(now, tenure.Request{}, func(rt *routine) {
		_, _ = st.Sweep(rt.ctx) // the next sweep finds the rest
	})
}

func coroutine(now time.Duration, req tenure.Request, body func(*routine)) *routine {
	rt := &routine{began: now, request: req}
	rt.ctx, rt.cancel = context.WithCancel(context.WithValue(context.Background(), routineKey{}, rt))
	rt.next, rt.stop = iter.Pull(func(yield func(*operation) bool) {
		rt.yield = yield
		body(rt)
	})
	return rt
}

// routineOf returns the call that uses the register.
func routineOf(ctx context.Context) *routine { return ctx.Value(routineKey{}).(*routine) }

// await passes an operation from a register to the simulation, and returns when
// it is finished. If it returns false, the call has ended meanwhile, and the
// register must not use any result.
func await(ctx context.Context, do func(finish func())) bool {
	return ctx.Err() == nil && routineOf(ctx).yield(&operation{do}) && ctx.Err() == nil
}

// step runs the call up to its next operation or its end. It calls done at the
// end, unless the call was abandoned.
func (rt *routine) step(done func()) {
	op, more := rt.next()
	if !more {
		rt.over = true
		rt.cancel()
		done()
		return
	}
	rt.asked = op
	op.do(func() {
		if !rt.over && rt.asked == op {
			rt.asked = nil
			rt.step(done)
		}
	})
}

// abandon ends the call from outside: its context ends, and nobody waits for
// its answers. Messages that it has sent stay in flight.
func (rt *routine) abandon() {
	if !rt.over {
		rt.over = true
		rt.cancel()
		rt.stop()
	}
}
