package sim

import (
	"context"
	"errors"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/cas"
	"github.com/croft-dev/croft/tenure"
)

// routine is one call of store/cas. It has goroutines of its own, and yet there is one thread: the simulation waits while they run, and they wait, in an operation of the
// register, while the simulation does.
type routine struct {
	ctx    context.Context
	cancel context.CancelFunc
	call   call
	// asks brings the next operation of the register, or nil when the call has returned.
	asks    chan *operation
	answers []store.Answer
	asked   *operation // the one that waits for its result
	over    bool
}

// operation is something a register wants done. do is called on the simulation's side and calls back with what has become of it.
type operation struct {
	do     func(finish func())
	result chan struct{}
}

// errGone ends operations whose process does not exist any more.
var errGone = errors.New("the call has ended")

// callCAS begins a call. step must be called for it to get anywhere.
func callCAS(st *cas.Store, rt *routine, requests []tenure.Request) {
	rt.ctx, rt.cancel = context.WithCancel(context.WithValue(context.Background(), routineKey{}, rt))
	rt.asks = make(chan *operation)
	go func() {
		rt.answers = st.Apply(rt.ctx, requests)
		rt.asks <- nil
	}()
}

type routineKey struct{}

// await is called by a register within a call: it hands an operation to the simulation and returns when that is finished. It reports false if the call has ended meanwhile, so that
// nothing of the operation may be looked at.
func await(ctx context.Context, do func(finish func())) bool {
	rt := ctx.Value(routineKey{}).(*routine)
	if ctx.Err() != nil {
		return false
	}
	op := &operation{do: do, result: make(chan struct{})}
	rt.asks <- op
	<-op.result
	return ctx.Err() == nil
}

// step lets the call go on to its next operation or its end. done is called at the end, unless the call was abandoned.
func (rt *routine) step(done func([]store.Answer)) {
	op := <-rt.asks
	if op == nil {
		rt.over = true
		rt.cancel()
		done(rt.answers)
		return
	}
	rt.asked = op
	op.do(func() {
		if rt.over || rt.asked != op {
			return
		}
		rt.asked = nil
		close(op.result)
		rt.step(done)
	})
}

// abandon ends the call from outside: its context is over, and nobody waits for its answers. What it has sent stays on its way.
func (rt *routine) abandon() {
	if rt.over {
		return
	}
	rt.over = true
	rt.cancel()
	<-rt.asks // the call returns although its worker still waits
	if rt.asked != nil {
		close(rt.asked.result)
		rt.asked = nil
	}
}
