package worktest

import (
	"context"
	"errors"
	"time"

	"github.com/croft-dev/croft/work"
)

func waking() []check {
	return []check{
		{"a worker that waits is woken by an item that becomes ready", func(t *trial) {
			for name, act := range map[string]func(h held){
				"add":      func(h held) { t.must(added(h.Queue)) },
				"release":  func(h held) { t.must(h.by(work.Release)) },
				"run now":  func(h held) { t.rescue(h.Item) },
				"reassign": func(h held) { t.must(hand(work.Reassign, h.ID)) },
				"replay": func(h held) {
					t.must(hand(work.Cancel, h.ID))
					t.must(hand(work.Replay, h.ID))
				},
			} {
				h := t.lapsed("woken/" + name)
				t.woken(work.Wanted{Queues: []string{"elsewhere", h.Queue}}, name, func() { act(h) })
			}
		}},
		{"a dispatcher that waits is woken by a completion", func(t *trial) {
			h := t.running("q")
			req := h.by(work.Complete)
			req.Effects = []work.Emission{{Name: "x"}}
			t.woken(work.Wanted{Effects: true}, "complete", func() { t.must(req) })
		}},
		{"a wake-up ends with its context", func(t *trial) {
			ctx, cancel := context.WithCancel(t.ctx)
			c := t.wake(ctx, t.open(), work.Wanted{Queues: []string{"q"}})
			cancel()
			if c == nil {
				return
			}
			for {
				select {
				case _, open := <-c:
					if !open {
						return
					}
				case <-time.After(t.Patience):
					t.Fatalf("the channel is still open")
				}
			}
		}},
	}
}

// wake returns the channel of hints, or nil if the ledger has none.
func (t *trial) wake(ctx context.Context, l work.Ledger, w work.Wanted) <-chan struct{} {
	t.Helper()
	waker, can := l.(work.Waker)
	if !can {
		return nil
	}
	c, err := waker.Wake(ctx, w)
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		t.Fatalf("Wake: %v", err)
	}
	return c
}

// woken expects a wake-up after an act on another handle.
func (t *trial) woken(w work.Wanted, name string, act func()) {
	t.Helper()
	c := t.wake(t.ctx, t.open(), w)
	act()
	if c == nil {
		return
	}
	select {
	case <-c:
	case <-time.After(t.Patience):
		t.Fatalf("%s woke nobody", name)
	}
}
