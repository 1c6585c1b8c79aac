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

// routine is one call of store/cas. It stops in every operation of its register, and goes on when the simulation has carried that out: a coroutine, so that there is one thread.
type routine struct {
	ctx     context.Context
	cancel  context.CancelFunc
	began   time.Duration
	request tenure.Request
	answer  store.Answer

	next  func() (*operation, bool)
	stop  func()
	yield func(*operation) bool
	asked *operation // the one that waits for its result
	over  bool
}

// operation is something a register wants done. do is called on the simulation's side and calls back with what has become of it.
type operation struct{ do func(finish func()) }

// errGone ends operations whose process does not exist any more.
var errGone = errors.New("the call has ended")

type routineKey struct{}

// newRoutine makes a call that carries a request out. step moves it on.
func newRoutine(st *cas.Store, req tenure.Request, now time.Duration) *routine {
	return coroutine(now, req, func(rt *routine) { rt.answer = cas.Do(rt.ctx, st, req) })
}

// newSweep makes a call that drops old records.
func newSweep(st *cas.Store, now time.Duration) *routine {
	return coroutine(now, tenure.Request{}, func(rt *routine) {
		_, _ = st.Sweep(rt.ctx) // whoever sweeps next meets what it has left
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

// routineOf is the call within which a register is used.
func routineOf(ctx context.Context) *routine { return ctx.Value(routineKey{}).(*routine) }

// await is called by a register within a call: it hands an operation to the simulation and returns when that is finished. It reports false if the call has ended meanwhile, so that
// nothing of the operation may be looked at.
func await(ctx context.Context, do func(finish func())) bool {
	return ctx.Err() == nil && routineOf(ctx).yield(&operation{do}) && ctx.Err() == nil
}

// step lets the call go on to its next operation or its end. done is called at the end, unless the call was abandoned.
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

// abandon ends the call from outside: its context is over, and nobody waits for its answers. What it has sent stays on its way.
func (rt *routine) abandon() {
	if !rt.over {
		rt.over = true
		rt.cancel()
		rt.stop()
	}
}
