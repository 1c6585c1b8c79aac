package work_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/guard/guardtest"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// hosting is a ledger with guards in its own place: those of the scheme mem.
type hosting struct {
	*mem.Ledger
	mu     sync.Mutex
	guards map[string]*memoryGuard
}

func newHosting() *hosting {
	return &hosting{Ledger: mem.NewLedger(nil), guards: map[string]*memoryGuard{}}
}

// memoryGuard is a guard in memory. It calls raising, if that is set, before it
// is raised.
type memoryGuard struct {
	guardtest.Memory
	raising func() error
}

func (g *memoryGuard) Close() error { return nil }

func (g *memoryGuard) Raise(ctx context.Context, s fence.Stamp) (fence.Mark, error) {
	if g.raising != nil {
		if err := g.raising(); err != nil {
			return fence.Mark{}, err
		}
	}
	return g.Memory.Raise(ctx, s)
}

// at returns the guard of a target in the ledger's own place.
func (h *hosting) at(target string) *memoryGuard {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.guards[target] == nil {
		h.guards[target] = &memoryGuard{}
	}
	return h.guards[target]
}

func (h *hosting) Guard(_ context.Context, target string) (guard.Guard, error) {
	if !strings.HasPrefix(target, "mem://") {
		return nil, guard.ErrElsewhere
	}
	return h.at(target), nil
}

// mark reads the mark of an item's only guard.
func (h *hosting) mark(t *testing.T, it work.Item) fence.Mark {
	t.Helper()
	m, err := h.at(it.Guards[0]).Mark(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// naming makes a request name a guard in the ledger's own place.
func naming(r *work.Request) { r.Guards = []string{"mem://here/{id}"} }

// owned adds an item with a guard, claims it, and raises the fence as a worker
// does.
func owned(t *testing.T, h *hosting, ttl time.Duration) (work.Item, tenure.Secret) {
	t.Helper()
	add(t, h, "q", 1, naming)
	c := work.Claim{Queues: []string{"q"}, Limit: 1, Secret: tenure.NewSecret(), Owner: "ann", TTL: ttl}
	items, err := h.Claim(t.Context(), c)
	if err != nil || len(items) != 1 {
		t.Fatalf("claimed %d items, %v", len(items), err)
	}
	if err := work.Fence(t.Context(), h, items, c.Secret, nil)[0]; err != nil {
		t.Fatal(err)
	}
	if m := h.mark(t, items[0]); m != items[0].Mark() {
		t.Fatalf("after Fence the mark is %v, want %v", m, items[0].Mark())
	}
	return items[0], c.Secret
}

// act returns an operator's request.
func act(verb work.Verb, id work.ID) work.Request {
	req := work.Request{Verb: verb, ID: id, Secret: tenure.NewSecret(), Actor: "olga", Note: "stuck"}
	if verb == work.Reassign {
		req.Owner = "cleo"
	}
	return req
}

// acts has a request for every act that takes an item from its owner.
var acts = map[string]func(t *testing.T, l work.Ledger, it work.Item, secret tenure.Secret) work.Request{
	"cancel": func(_ *testing.T, _ work.Ledger, it work.Item, _ tenure.Secret) work.Request {
		return act(work.Cancel, it.ID)
	},
	"reassign": func(_ *testing.T, _ work.Ledger, it work.Item, _ tenure.Secret) work.Request {
		return act(work.Reassign, it.ID)
	},
	"takeover": func(_ *testing.T, _ work.Ledger, it work.Item, _ tenure.Secret) work.Request {
		return act(work.Takeover, it.ID)
	},
	"replay": func(t *testing.T, l work.Ledger, it work.Item, secret tenure.Secret) work.Request {
		if err := l.Apply(t.Context(), []work.Request{{
			Verb: work.Fail, ID: it.ID, Token: it.Record.Token, Secret: secret, Error: "broken", Final: true,
		}})[0].Err; err != nil {
			t.Fatal(err)
		}
		return act(work.Replay, it.ID)
	},
	"requeue": func(_ *testing.T, _ work.Ledger, it work.Item, _ tenure.Secret) work.Request {
		time.Sleep(it.Record.TTL)
		return work.Request{
			Verb: work.Requeue, ID: it.ID, Token: it.Record.Token, Secret: tenure.NewSecret(), Owner: "reconciler",
		}
	},
}

// TestAnActRaisesTheFenceBeforeItReturns: the guard refuses the old owner
// before any successor has written, and admits the next owner.
func TestAnActRaisesTheFenceBeforeItReturns(t *testing.T) {
	for name, request := range acts {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHosting()
				it, secret := owned(t, h, time.Minute)
				got := work.Act(t.Context(), h, []work.Request{request(t, h, it, secret)}, nil)[0]
				if got.Err != nil || len(got.Raised) != 1 || got.Raised[0].Target != it.Guards[0] {
					t.Fatalf("the act says %v, raised %+v", got.Err, got.Raised)
				}
				if m := h.mark(t, it); m != got.Item.Mark() || m.Token <= it.Record.Token {
					t.Errorf("the mark is %v, the act's stamp %v", m, got.Item.Record.Stamp())
				}
				if _, err := h.at(it.Guards[0]).Raise(t.Context(), it.Record.Stamp()); !errors.Is(err, fence.ErrStale) {
					t.Errorf("the guard answers the old owner %v, want stale", err)
				}
			})
		})
	}
}

// TestAnActThatCannotRaiseTheFenceSaysSo: the act is done all the same, and a
// copy of it raises the fence again.
func TestAnActThatCannotRaiseTheFenceSaysSo(t *testing.T) {
	for name, request := range acts {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHosting()
				it, secret := owned(t, h, time.Minute)
				req, down := request(t, h, it, secret), errors.New("the disk is gone")
				h.at(it.Guards[0]).raising = func() error { return down }
				got := work.Act(t.Context(), h, []work.Request{req}, nil)[0]
				if !errors.Is(got.Err, work.ErrUnfenced) || !errors.Is(got.Err, down) ||
					!strings.Contains(got.Err.Error(), it.Guards[0]) ||
					!strings.Contains(got.Err.Error(), got.Item.Record.Stamp().String()) {
					t.Fatalf("the act says %v", got.Err)
				}
				if now := get(t, h, it.ID); now.Record.Token <= it.Record.Token {
					t.Errorf("the act was not done: %+v", now)
				}
				h.at(it.Guards[0]).raising = nil
				if again := work.Act(t.Context(), h, []work.Request{req}, nil)[0]; again.Err != nil || !again.Repeated {
					t.Errorf("the act sent again says %v", again.Err)
				}
				if m := h.mark(t, it); m != got.Item.Mark() {
					t.Errorf("the mark is %v", m)
				}
			})
		})
	}
}

// TestABatchOfActsAnswersForEachItem: a guard that fails spoils no other act.
// Requests that fail raise nothing.
func TestABatchOfActsAnswersForEachItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHosting()
		sound, _ := owned(t, h, time.Minute)
		failing, _ := owned(t, h, time.Minute)
		down := errors.New("the disk is gone")
		h.at(failing.Guards[0]).raising = func() error { return down }
		over, secret := owned(t, h, time.Minute)
		h.Apply(t.Context(), []work.Request{{Verb: work.Complete, ID: over.ID, Token: over.Record.Token, Secret: secret}})
		got := work.Act(t.Context(), h, []work.Request{
			act(work.Cancel, failing.ID), act(work.Cancel, over.ID), act(work.Cancel, sound.ID),
		}, nil)
		if !errors.Is(got[0].Err, work.ErrUnfenced) || !errors.Is(got[0].Err, down) ||
			!errors.Is(got[1].Err, work.ErrState) || got[1].Raised != nil ||
			got[2].Err != nil || len(got[2].Raised) != 1 {
			t.Errorf("the acts say %+v", got)
		}
		if m := h.mark(t, over); m != over.Mark() {
			t.Errorf("a refused act has moved the mark to %v", m)
		}
	})
}

// TestManyActsRaiseTheirFencesTogether: more guards than are asked at a time.
func TestManyActsRaiseTheirFencesTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHosting()
		var items []work.Item
		var requests []work.Request
		for range 100 {
			it, _ := owned(t, h, time.Minute)
			h.at(it.Guards[0]).raising = func() error { time.Sleep(time.Second); return nil }
			items, requests = append(items, it), append(requests, act(work.Cancel, it.ID))
		}
		began := time.Now()
		for i, got := range work.Act(t.Context(), h, requests, nil) {
			if got.Err != nil || h.mark(t, items[i]) != got.Item.Mark() {
				t.Errorf("act %d says %v, the mark is %v", i, got.Err, h.mark(t, items[i]))
			}
		}
		if took := time.Since(began); took >= 20*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

// TestGuardsThatHangDoNotHideWhatAnActDid: the acts give them up together.
func TestGuardsThatHangDoNotHideWhatAnActDid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHosting()
		var requests []work.Request
		hang := make(chan struct{})
		for range 40 {
			it, _ := owned(t, h, time.Hour)
			h.at(it.Guards[0]).raising = func() error { <-hang; return nil }
			requests = append(requests, act(work.Cancel, it.ID))
		}
		began := time.Now()
		for i, got := range work.Act(t.Context(), h, requests, nil) {
			if !errors.Is(got.Err, work.ErrUnfenced) || got.Item.State != work.Cancelled {
				t.Errorf("act %d says %v", i, got.Err)
			}
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("it took %s", took)
		}
		close(hang)
	})
}

// TestAnItemThatNobodyOwnedHasNoFenceToRaise: acts on it succeed, although its
// guard has no mark, and make none.
func TestAnItemThatNobodyOwnedHasNoFenceToRaise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHosting()
		id := add(t, h, "q", 1, func(r *work.Request) {
			r.Guards = []string{"mem://here/{id}", "s3://evil/{id}"}
		})[0]
		for _, verb := range []work.Verb{work.Reassign, work.Cancel, work.Replay, work.Takeover} {
			if got := work.Act(t.Context(), h, []work.Request{act(verb, id)}, nil)[0]; got.Err != nil || got.Raised != nil {
				t.Errorf("%s says %v, raised %+v", verb, got.Err, got.Raised)
			}
		}
		if m := h.mark(t, get(t, h, id)); !m.IsZero() {
			t.Errorf("an act has made the mark %v", m)
		}
		// The operator of the takeover has owned it.
		if got := work.Act(t.Context(), h, []work.Request{act(work.Reassign, id)}, nil)[0]; !errors.Is(got.Err, work.ErrUnfenced) {
			t.Errorf("after a takeover a reassign says %v, want unfenced", got.Err)
		}
	})
}

// TestAnActIsFencedByTheNextOwnerToo: if the next owner was faster at the
// guard, the fence is up.
func TestAnActIsFencedByTheNextOwnerToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHosting()
		it, _ := owned(t, h, time.Minute)
		c := work.Claim{Queues: []string{"q"}, Limit: 1, Secret: tenure.NewSecret(), Owner: "cleo", TTL: time.Minute}
		h.at(it.Guards[0]).raising = func() error {
			h.at(it.Guards[0]).raising = nil
			items, err := h.Claim(t.Context(), c)
			if err != nil || len(items) != 1 {
				t.Errorf("cleo claimed %d items, %v", len(items), err)
				return err
			}
			return work.Fence(t.Context(), h, items, c.Secret, nil)[0]
		}
		got := work.Act(t.Context(), h, []work.Request{act(work.Reassign, it.ID)}, nil)[0]
		if got.Err != nil || h.mark(t, it) != get(t, h, it.ID).Mark() {
			t.Errorf("the act says %v, the mark is %v", got.Err, h.mark(t, it))
		}
	})
}

// TestAWorkerRaisesTheFenceBeforeItsHandlerBegins: the mark has the attempt's
// stamp when the handler looks.
func TestAWorkerRaisesTheFenceBeforeItsHandlerBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHosting()
		ids := add(t, h, "q", 20, naming)
		var kinds sync.Map
		w := start(h, one(func(_ context.Context, j *work.Job) (work.Result, error) {
			if m := h.mark(t, j.Item()); m != j.Stamp().Mark() {
				t.Errorf("the mark is %v, the stamp %v", m, j.Stamp())
			}
			if _, begun := kinds.Load(j.Item().ID); !begun {
				t.Error("the handler began before its event")
			}
			return work.Result{}, nil
		}), &work.Options{Slots: 4, Observe: func(e work.Event) {
			if e.Kind == work.EventStarted {
				kinds.Store(e.Item, true)
			}
		}})
		time.Sleep(time.Minute)
		if err := w.stop(); err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			if it := get(t, h, id); it.State != work.Done || it.Attempts != 1 {
				t.Errorf("the item is %s after %d attempts", it.State, it.Attempts)
			}
		}
	})
}

// TestAnItemWhoseFenceCannotBeRaisedIsGivenBack: its handler never begins, the
// attempt does not count, the ledger keeps the reason, and the worker does not
// spin. Other items of the queue are done.
func TestAnItemWhoseFenceCannotBeRaisedIsGivenBack(t *testing.T) {
	for name, c := range map[string]struct {
		target, remedy string
		is             error
	}{
		"not allowed":   {"s3://evil/{id}", "allow its place (Options.Raise", guard.ErrNotAllowed},
		"another's key": {"mem://shared", "put {id} into the target", fence.ErrWrongKey},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHosting()
				if _, err := h.at("mem://shared").Raise(t.Context(), fence.Stamp{
					Key: "another/key", Token: 7, Grant: tenure.NewSecret().Grant(),
				}); err != nil {
					t.Fatal(err)
				}
				bad := add(t, h, "q", 1, func(r *work.Request) { r.Guards = []string{c.target} })[0]
				good := add(t, h, "q", 1, naming)[0]
				var unfenced, claims atomic.Int64
				w := start(h, one(func(_ context.Context, j *work.Job) (work.Result, error) {
					if j.Item().ID == bad {
						t.Error("the handler began")
					}
					return work.Result{}, nil
				}), &work.Options{Observe: func(e work.Event) {
					switch e.Kind {
					case work.EventUnfenced:
						unfenced.Add(1)
						if e.Item != bad || !errors.Is(e.Err, c.is) {
							t.Errorf("unfenced: %+v", e)
						}
					case work.EventClaimed:
						claims.Add(int64(e.Count))
					}
				}})
				time.Sleep(5 * time.Minute)
				if err := w.stop(); err != nil {
					t.Fatal(err)
				}
				it := get(t, h, bad)
				if it.State != work.Waiting || it.Attempts != 0 || !strings.Contains(it.Error, c.remedy) ||
					!strings.Contains(it.Error, it.Guards[0]) {
					t.Errorf("the item is %s after %d attempts: %q", it.State, it.Attempts, it.Error)
				}
				if n := unfenced.Load(); n < 2 || n > 10 || claims.Load() != n+1 {
					t.Errorf("in five minutes it was tried %d times, in %d claims", n, claims.Load())
				}
				if it := get(t, h, good); it.State != work.Done {
					t.Errorf("the other item is %s", it.State)
				}
			})
		})
	}
}

// TestAnOvertakenClaimDoesNotBegin: an act came between the claim and the first
// mark, where it found no fence to raise. So the worker asks the ledger once
// more after it has raised the fence.
func TestAnOvertakenClaimDoesNotBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHosting()
		id := add(t, h, "q", 1, naming)[0]
		guarded := h.at(get(t, h, id).Guards[0])
		guarded.raising = func() error {
			guarded.raising = nil
			got := work.Act(t.Context(), h, []work.Request{act(work.Cancel, id)}, nil)[0]
			if !errors.Is(got.Err, work.ErrUnfenced) {
				t.Errorf("the act says %v, want unfenced", got.Err)
			}
			return nil
		}
		w := start(h, one(func(context.Context, *work.Job) (work.Result, error) {
			t.Error("the handler began")
			return work.Result{}, nil
		}), nil)
		time.Sleep(5 * time.Minute)
		if err := w.stop(); err != nil {
			t.Fatal(err)
		}
		if it := get(t, h, id); it.State != work.Cancelled {
			t.Errorf("the item is %s", it.State)
		}
	})
}
