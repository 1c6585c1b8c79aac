package drill

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// tap is a store between a worker's client and the real store. It behaves like
// a bad network: calls can hang, an answer can be lost, and a request can
// arrive late. It decides nothing itself.
type tap struct {
	store.Store

	// calls is read-locked by every call. So a cut happens between calls, and
	// every request sent before it has been answered.
	calls sync.RWMutex
	wire  chan struct{} // closed if the store can be reached

	mu       sync.Mutex
	loseNext bool
	first    *tenure.Request // the first acquire, as it was sent
	tokens   []fence.Token   // in the store's answers to acquires, also in lost ones
}

func newTap(st store.Store) *tap {
	t := &tap{Store: st, wire: make(chan struct{})}
	close(t.wire)
	return t
}

// cut makes the store silent. Calls hang until their context ends or reach is
// called.
func (t *tap) cut() {
	t.calls.Lock()
	defer t.calls.Unlock()
	t.wire = make(chan struct{})
}

// reach undoes a cut.
func (t *tap) reach() {
	t.calls.Lock()
	defer t.calls.Unlock()
	select {
	case <-t.wire:
	default:
		close(t.wire)
	}
}

// enter begins a call. It hangs while the store is cut off.
func (t *tap) enter(ctx context.Context) (leave func(), err error) {
	for {
		t.calls.RLock()
		wire := t.wire
		select {
		case <-wire:
			return t.calls.RUnlock, nil
		default:
		}
		t.calls.RUnlock()
		select {
		case <-wire:
		case <-ctx.Done():
			return nil, store.Unknown(fmt.Errorf("cut off from the store: %w", context.Cause(ctx)))
		}
	}
}

// Apply asks the store. It loses the answer that it was told to lose.
func (t *tap) Apply(ctx context.Context, requests []tenure.Request) []store.Answer {
	leave, err := t.enter(ctx)
	if err != nil {
		return store.Failed(len(requests), err)
	}
	defer leave()
	answers := t.Store.Apply(ctx, requests)
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, req := range requests {
		if req.Verb != tenure.Acquire || i >= len(answers) {
			continue
		}
		if t.first == nil {
			t.first = &req
		}
		if answers[i].Err != nil {
			continue
		}
		t.tokens = append(t.tokens, answers[i].Record.Token)
		if t.loseNext {
			t.loseNext = false
			answers[i] = store.Answer{Err: store.Unknown(errors.New("the reply was lost"))}
		}
	}
	return answers
}

// Get asks the store for a record.
func (t *tap) Get(ctx context.Context, key string) (tenure.Record, error) {
	leave, err := t.enter(ctx)
	if err != nil {
		return tenure.Record{}, err
	}
	defer leave()
	return t.Store.Get(ctx, key)
}

// Now asks the store for its time.
func (t *tap) Now(ctx context.Context) (time.Time, error) {
	leave, err := t.enter(ctx)
	if err != nil {
		return time.Time{}, err
	}
	defer leave()
	return t.Store.Now(ctx)
}

// Watch is the store's Watch.
func (t *tap) Watch(ctx context.Context, key string) (<-chan struct{}, error) {
	if w, ok := t.Store.(store.Watcher); ok {
		return w.Watch(ctx, key)
	}
	return nil, fmt.Errorf("this store cannot wake waiters: %w", errors.ErrUnsupported)
}

// Acts is the store's Acts.
func (t *tap) Acts(ctx context.Context) (<-chan string, error) {
	if a, ok := t.Store.(store.Announcer); ok {
		return a.Acts(ctx)
	}
	return nil, fmt.Errorf("this store tells of no acts: %w", errors.ErrUnsupported)
}

// lose makes the tap lose the answer to the next acquire that is granted.
func (t *tap) lose() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.loseNext = true
}

// forget clears the memory: the next acquire is the first.
func (t *tap) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.first, t.tokens = nil, nil
}

// granted lists the tokens of the answers so far.
func (t *tap) granted() []fence.Token {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]fence.Token(nil), t.tokens...)
}

// repeat sends the first acquire once more, like a network that has delayed a
// copy.
func (t *tap) repeat(ctx context.Context) (tenure.Record, error) {
	t.mu.Lock()
	first := t.first
	t.mu.Unlock()
	if first == nil {
		return tenure.Record{}, errors.New("there is no request to repeat")
	}
	answer := t.Store.Apply(ctx, []tenure.Request{*first})[0]
	return answer.Record, answer.Err
}
