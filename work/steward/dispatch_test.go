package steward_test

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	croft "github.com/croft-dev/croft"
	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
	"github.com/croft-dev/croft/work/steward"
)

// patience bounds the wait for things that must happen. It does not measure
// speed.
const patience = time.Minute

// office has a lease store and a ledger, both on the system's clock.
type office struct {
	*rig
	st *mem.Store
}

func newOffice(t *testing.T) *office {
	return &office{rig: &rig{T: t, l: mem.NewLedger(nil)}, st: mem.New(nil)}
}

// dispatch runs a dispatcher until the returned function is called.
func (o *office) dispatch(l work.Ledger, to map[string]steward.Deliverer, options *steward.DispatchOptions) (stop func()) {
	o.Helper()
	if options == nil {
		options = &steward.DispatchOptions{}
	}
	options.Poll = 10 * time.Millisecond
	c := croft.New(o.st, nil)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- steward.RunDispatcher(ctx, c, l, to, options) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				o.Errorf("the dispatcher ended with %v", err)
			}
			_ = c.Close()
		})
	}
	o.Cleanup(stop)
	return stop
}

// eventually waits until all effects of an item are in a state.
func (o *office) eventually(id work.ID, want work.EffectState) []work.Effect {
	o.Helper()
	for begun := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		var got []work.Effect
		ready := true
		for e, err := range o.l.Effects(context.Background(), work.EffectQuery{Item: id}) {
			if err != nil {
				o.Fatal(err)
			}
			got = append(got, e)
			ready = ready && e.State == want
		}
		if ready && len(got) > 0 {
			return got
		}
		if time.Since(begun) > patience {
			o.Fatalf("the effects are %+v, want all %s", got, want)
		}
	}
}

// receiver counts deliveries by identity.
type receiver struct {
	mu   sync.Mutex
	seen map[string]int
	err  func(n int) error
}

func (r *receiver) Deliver(_ context.Context, e work.Effect) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen == nil {
		r.seen = map[string]int{}
	}
	r.seen[e.EffectID.String()]++
	if r.err != nil {
		return r.err(r.seen[e.EffectID.String()])
	}
	return nil
}

func (r *receiver) count() (identities, deliveries int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.seen {
		identities, deliveries = identities+1, deliveries+n
	}
	return identities, deliveries
}

// TestEveryEffectIsDeliveredOnce: this holds for any number of dispatchers if
// nothing goes wrong.
func TestEveryEffectIsDeliveredOnce(t *testing.T) {
	o := newOffice(t)
	to := &receiver{}
	for range 3 {
		o.dispatch(o.l, map[string]steward.Deliverer{"a": to, "b": to}, nil)
	}
	var ids []work.ID
	for range 30 {
		ids = append(ids, o.done("q", work.Emission{Name: "a"}, work.Emission{Name: "x", To: "b"}))
	}
	for _, id := range ids {
		o.eventually(id, work.Sent)
	}
	if identities, deliveries := to.count(); identities != 60 || deliveries != 60 {
		t.Errorf("%d identities in %d deliveries", identities, deliveries)
	}
}

// TestAFailedDeliveryIsTriedAgainUnderTheSameIdentity: an effect that cannot
// succeed is given up.
func TestAFailedDeliveryIsTriedAgainUnderTheSameIdentity(t *testing.T) {
	o := newOffice(t)
	flaky := &receiver{err: func(n int) error {
		if n < 2 {
			return errors.New("no answer")
		}
		return nil
	}}
	never := &receiver{err: func(int) error { return steward.Refused(errors.New("no such customer")) }}
	doubtful := &receiver{err: func(int) error { return errors.New("no answer") }}
	o.dispatch(o.l, map[string]steward.Deliverer{"flaky": flaky, "never": never, "doubtful": doubtful}, nil)
	again := o.done("q", work.Emission{Name: "flaky"})
	lost := o.done("q", work.Emission{Name: "never"})
	open := o.done("q", work.Emission{Name: "doubtful", AtMostOnce: true})
	if e := o.eventually(lost, work.Failed); e[0].Error != "no such customer" {
		t.Errorf("the error is %q", e[0].Error)
	}
	if e := o.eventually(again, work.Sent); e[0].Attempts != 2 {
		t.Errorf("it took %d deliveries", e[0].Attempts)
	}
	// An effect is also unknown before it is settled. Its error tells the two
	// apart.
	for begun := time.Now(); o.eventually(open, work.Unknown)[0].Error == ""; time.Sleep(5 * time.Millisecond) {
		if time.Since(begun) > patience {
			t.Fatal("never settled")
		}
	}
	if identities, deliveries := doubtful.count(); identities != 1 || deliveries != 1 {
		t.Errorf("what may be sent once was sent %d times", deliveries)
	}
}

// warnings passes on the errors that a dispatcher logs.
type warnings chan string

func (w warnings) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }
func (w warnings) WithAttrs([]slog.Attr) slog.Handler               { return w }
func (w warnings) WithGroup(string) slog.Handler                    { return w }
func (w warnings) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		select {
		case w <- a.Value.String():
		default: // nobody reads them any more
		}
		return true
	})
	return nil
}

// TestAMadeUpMarkEndsNoDispatcher: a dispatcher goes on, and logs the same
// error in every term. Under another key effects are delivered.
func TestAMadeUpMarkEndsNoDispatcher(t *testing.T) {
	o := newOffice(t)
	fence.SetMaxAhead(250 * fence.DefaultMaxAhead) // as if the mark were older than the bound
	planted := fence.Stamp{Key: "work/dispatcher", Token: fence.MaxToken, Grant: tenure.NewSecret().Grant()}
	_, err := o.l.Take(t.Context(), work.Taking{Stamp: planted, Hold: time.Minute})
	fence.SetMaxAhead(0)
	if err != nil {
		t.Fatal(err)
	}
	to := &receiver{}
	id := o.done("q", work.Emission{Name: "a"})
	said := make(warnings, 3)
	stop := o.dispatch(o.l, map[string]steward.Deliverer{"a": to}, &steward.DispatchOptions{Logger: slog.New(said)})
	first := ""
	for range 3 {
		select {
		case text := <-said:
			if first = cmp.Or(first, text); text != first || !strings.Contains(text, "give all dispatchers another key") {
				t.Errorf("it says %q, after %q", text, first)
			}
		case <-time.After(patience):
			t.Fatal("it says nothing any more")
		}
	}
	stop()
	if _, deliveries := to.count(); deliveries != 0 {
		t.Errorf("%d deliveries below the mark", deliveries)
	}
	o.dispatch(o.l, map[string]steward.Deliverer{"a": to}, &steward.DispatchOptions{Key: "work/dispatcher-2"})
	o.eventually(id, work.Sent)
}

// TestADispatcherThatWasReplacedSettlesNothing: its delivery ends after a newer
// dispatcher has begun, and the ledger refuses its settlement.
func TestADispatcherThatWasReplacedSettlesNothing(t *testing.T) {
	o := newOffice(t)
	inside, goOn := make(chan struct{}), make(chan struct{})
	refused := make(chan steward.Delivery, 1)
	slow := steward.Func(func(context.Context, work.Effect) error {
		close(inside)
		<-goOn // ignores its context, as a stuck call does
		return nil
	})
	first := o.dispatch(o.l, map[string]steward.Deliverer{"a": slow}, &steward.DispatchOptions{TTL: time.Hour, Observe: func(d steward.Delivery) { refused <- d }})
	id := o.done("q", work.Emission{Name: "a"})
	<-inside
	operator := croft.New(o.st, nil)
	defer operator.Close()
	taken, err := operator.Takeover(t.Context(), "work/dispatcher", croft.ByHand{Actor: "olga", Note: "it is stuck"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.l.Take(t.Context(), work.Taking{Stamp: taken.Deed.Stamp(), Hold: time.Minute}); err != nil {
		t.Fatal(err) // the next dispatcher begins so, too: it raises the mark
	}
	close(goOn)
	if d := <-refused; !errors.Is(d.Refused, fence.ErrStale) {
		t.Errorf("the ledger's answer was %v, want stale", d.Refused)
	}
	first()
	if e := o.eventually(id, work.Unknown); e[0].Settled != (time.Time{}) {
		t.Errorf("the effect was settled: %+v", e[0])
	}
	n := 0
	for r, err := range o.l.Refusals(t.Context(), work.RefusalQuery{}) {
		if err != nil || r.Why != "stale" {
			t.Errorf("%+v, %v", r, err)
		}
		n++
	}
	if n == 0 {
		t.Error("no refusal was recorded")
	}
}

// TestADispatcherWhoseLeaseStoreForgotGetsAboveTheMark: the outbox goes on
// after the lease store has lost its memory and issues tokens again.
func TestADispatcherWhoseLeaseStoreForgotGetsAboveTheMark(t *testing.T) {
	o := newOffice(t)
	ahead := fence.Stamp{Key: "work/dispatcher", Token: fence.Token(time.Now().Add(24 * time.Hour).UnixMicro()), Grant: tenure.NewSecret().Grant()}
	if _, err := o.l.Take(t.Context(), work.Taking{Stamp: ahead, Hold: time.Minute}); err != nil {
		t.Fatal(err)
	}
	o.dispatch(o.l, map[string]steward.Deliverer{"a": &receiver{}}, nil)
	o.eventually(o.done("q", work.Emission{Name: "a"}), work.Sent)
}

// forgetful is a ledger that loses its answer to every other settlement.
type forgetful struct {
	*mem.Ledger
	mu    sync.Mutex
	calls int
}

func (l *forgetful) Settle(ctx context.Context, s []work.Settlement) []work.EffectAnswer {
	answers := l.Ledger.Settle(ctx, s)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls++; l.calls%2 == 1 {
		return work.FailedEffects(len(s), store.Unknown(errors.New("the reply was lost")))
	}
	return answers
}

// TestALostAnswerToASettlementIsAskedForAgain: the dispatcher settles again,
// and delivers nothing twice.
func TestALostAnswerToASettlementIsAskedForAgain(t *testing.T) {
	o := newOffice(t)
	to := &receiver{}
	settled := make(chan steward.Delivery, 100)
	o.dispatch(&forgetful{Ledger: o.l}, map[string]steward.Deliverer{"a": to}, &steward.DispatchOptions{Observe: func(d steward.Delivery) { settled <- d }})
	for range 5 {
		o.done("q", work.Emission{Name: "a"})
		if d := <-settled; d.State != work.Sent || d.Refused != nil {
			t.Errorf("settled as %+v", d)
		}
	}
	if identities, deliveries := to.count(); identities != 5 || deliveries != 5 {
		t.Errorf("%d identities in %d deliveries", identities, deliveries)
	}
}

// TestStoppingWaitsForWhatIsOnItsWay: a delivery in flight is settled by its
// own outcome.
func TestStoppingWaitsForWhatIsOnItsWay(t *testing.T) {
	o := newOffice(t)
	inside, goOn := make(chan struct{}), make(chan struct{})
	stop := o.dispatch(o.l, map[string]steward.Deliverer{"a": steward.Func(func(ctx context.Context, _ work.Effect) error {
		close(inside)
		select {
		case <-goOn:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})}, nil)
	id := o.done("q", work.Emission{Name: "a"})
	<-inside
	time.AfterFunc(50*time.Millisecond, func() { close(goOn) })
	stop()
	o.eventually(id, work.Sent)
}

// TestBadInputIsNamed: invalid input is refused before anything is taken.
func TestBadInputIsNamed(t *testing.T) {
	o := newOffice(t)
	c := croft.New(o.st, nil)
	defer c.Close()
	to := map[string]steward.Deliverer{"a": &receiver{}}
	for name, err := range map[string]error{
		"no destination": steward.RunDispatcher(t.Context(), c, o.l, nil, nil),
		"nil":            steward.RunDispatcher(t.Context(), c, o.l, map[string]steward.Deliverer{"a": nil}, nil),
		"no slots":       steward.RunDispatcher(t.Context(), c, o.l, to, &steward.DispatchOptions{Slots: -1}),
		"a bad key":      steward.RunDispatcher(t.Context(), c, o.l, to, &steward.DispatchOptions{Key: "a//b"}),
		"a bad interval": steward.RunReconciler(t.Context(), c, o.l, &steward.ReconcileOptions{Interval: -1}),
	} {
		if !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("%s: %v, want invalid", name, err)
		}
	}
}

// hinting is a ledger whose first hints break at once.
type hinting struct {
	work.Ledger
	asked chan (chan struct{})
	once  sync.Once
}

func (h *hinting) Wake(ctx context.Context, _ work.Wanted) (<-chan struct{}, error) {
	hints := make(chan struct{}, 1)
	broken := false
	h.once.Do(func() {
		broken = true
		close(hints)
	})
	if !broken {
		context.AfterFunc(ctx, func() { close(hints) })
		h.asked <- hints
	}
	return hints, nil
}

// TestHintsThatBrokeBeginAgain: the dispatcher asks for hints again after the
// ledger was away.
func TestHintsThatBrokeBeginAgain(t *testing.T) {
	o := newOffice(t)
	r := &receiver{}
	l := &hinting{Ledger: o.l, asked: make(chan (chan struct{}), 10)}
	o.dispatch(l, map[string]steward.Deliverer{"mail": r}, nil)
	select {
	case hints := <-l.asked:
		hints <- struct{}{}
	case <-time.After(patience):
		t.Fatal("the ledger was not asked for hints again")
	}
	o.eventually(o.done("letters", work.Emission{Name: "mail"}), work.Sent)
}
