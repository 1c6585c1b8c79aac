package history

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// shelf is a guarded resource in memory. It can be broken in several ways.
type shelf struct {
	mu      sync.Mutex
	mark    fence.Mark
	holds   string
	applied []string
	broken  flaw
}

type flaw string

const (
	sound        flaw = ""
	admitsAll    flaw = "admits everybody"
	twoSteps     flaw = "checks, and then writes"
	noRaise      flaw = "does not raise"
	forgetsSeq   flaw = "takes a write twice"
	writesAnyway flaw = "refuses, and writes"
	refusesAll   flaw = "refuses for no reason"
)

func (s *shelf) read() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holds
}

func (s *shelf) raise(stamp fence.Stamp) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken == noRaise {
		return nil
	}
	next, err := s.mark.Admit(stamp)
	s.mark = next
	return err
}

func (s *shelf) write(stamp fence.Stamp, update string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	mark := s.mark
	if s.broken == forgetsSeq && stamp.Grant == mark.Grant {
		mark.Seq = 0
	}
	next, err := mark.Admit(stamp)
	switch {
	case s.broken == twoSteps && err == nil:
		s.mu.Unlock()
		time.Sleep(3 * time.Second)
		s.mu.Lock()
	case s.broken == admitsAll:
		err = nil
	case s.broken == refusesAll && stamp.Seq == 2:
		err = &fence.StaleError{Presented: stamp, Newest: fence.Mark{Key: stamp.Key, Token: stamp.Token + 1, Grant: stamp.Grant}}
	}
	if err != nil && s.broken != writesAnyway {
		return err
	}
	if next.Token >= s.mark.Token {
		s.mark = next
	}
	s.holds, s.applied = update, append(s.applied, update)
	return err
}

// rounds limits how often a scene is played until it shows the flaw. Usually
// the first time does.
const rounds = 50

// play lets some processes take turns at one key, and returns their history.
// The process number selects the store. Time is that of the synctest bubble, so
// a pause costs nothing.
func play(t *testing.T, stores []store.Store, s *shelf) []Op {
	t.Helper()
	folder := t.TempDir()
	var all sync.WaitGroup
	for p := range 5 {
		rec, err := NewRecorder(folder, fmt.Sprintf("p%d", p))
		if err != nil {
			t.Fatal(err)
		}
		w := &player{owner: fmt.Sprintf("p%d", p), rec: rec, st: rec.NewStore(stores[p%len(stores)]), shelf: s, random: rand.New(rand.NewPCG(7, uint64(p)))}
		all.Go(func() {
			defer rec.Close()
			for turn := range 15 {
				name := fmt.Sprintf("p%d.%d", p, turn)
				if p == 4 { // the operator
					w.act(name)
				} else {
					w.turn(name)
				}
			}
		})
	}
	all.Wait()
	rec, err := NewRecorder(folder, "q-judge")
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	rec.End(rec.Begin(Call{Kind: Read, Key: "k"}), Result{Outcome: OK, Update: s.read()})
	rec.Note(Now(), Call{Kind: Applied, Key: "k"}, Result{Outcome: OK, Updates: s.applied})
	ops, err := Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	return ops
}

type player struct {
	owner  string
	rec    *Recorder
	st     *Store
	shelf  *shelf
	random *rand.Rand
}

func (w *player) apply(verb tenure.Verb, secret tenure.Secret) store.Answer {
	return w.ask(tenure.Request{Verb: verb, Secret: secret, Owner: w.owner})
}

func (w *player) ask(req tenure.Request) store.Answer {
	req.Key, req.TTL = "k", time.Second
	return w.st.Apply(context.Background(), []tenure.Request{req})[0]
}

// act plays an operator: it does one act, sometimes twice, and raises the
// fence. After a takeover it also writes once, and then releases the key or
// leaves it.
func (w *player) act(name string) {
	time.Sleep(w.upTo(2 * time.Second))
	req := tenure.Request{Secret: tenure.NewSecret(), Owner: w.owner, Actor: w.owner, Note: "because"}
	req.Verb = []tenure.Verb{tenure.Takeover, tenure.Reserve, tenure.Revoke}[w.random.IntN(3)]
	if req.Verb == tenure.Reserve {
		req.Owner = fmt.Sprintf("p%d", w.random.IntN(4))
	}
	done := w.ask(req)
	if done.Err != nil {
		return
	}
	stamp := done.Record.Stamp()
	id := w.rec.Begin(presented(Raise, stamp))
	err := w.shelf.raise(stamp)
	w.rec.End(id, Admitted(err))
	if w.random.IntN(2) == 0 {
		time.Sleep(w.upTo(500 * time.Millisecond))
		w.ask(req)
	}
	if req.Verb != tenure.Takeover || err != nil {
		return
	}
	id = w.rec.Begin(Call{Kind: Read, Key: "k"})
	prior := w.shelf.read()
	w.rec.End(id, Result{Outcome: OK, Update: prior})
	time.Sleep(w.upTo(1500 * time.Millisecond))
	stamp.Seq = 1
	_ = w.rec.Write(stamp, name, prior, func() error { return w.shelf.write(stamp, name) })
	if w.random.IntN(2) == 0 {
		w.apply(tenure.Release, req.Secret)
	}
}

// turn acquires the key, writes twice and releases it. Its pauses sometimes
// outlast the lease.
func (w *player) turn(name string) {
	secret := tenure.NewSecret()
	granted := w.apply(tenure.Acquire, secret)
	for granted.Err != nil {
		if !errors.Is(granted.Err, tenure.ErrHeld) {
			return
		}
		time.Sleep(w.upTo(300 * time.Millisecond))
		granted = w.apply(tenure.Acquire, secret)
	}
	stamp := granted.Record.Stamp()
	id := w.rec.Begin(presented(Raise, stamp))
	err := w.shelf.raise(stamp)
	w.rec.End(id, Admitted(err))
	for seq := uint64(1); seq <= 2 && err == nil; seq++ {
		id := w.rec.Begin(Call{Kind: Read, Key: "k"})
		prior := w.shelf.read()
		w.rec.End(id, Result{Outcome: OK, Update: prior})
		time.Sleep(w.upTo(1500 * time.Millisecond))
		w.apply(tenure.Renew, secret)
		stamp.Seq = seq
		update := fmt.Sprintf("%s.%d", name, seq)
		for copies := w.random.IntN(2); copies >= 0; copies-- { // some are sent twice
			err = w.rec.Write(stamp, update, prior, func() error { return w.shelf.write(stamp, update) })
			if errors.Is(err, fence.ErrRepeated) {
				err = nil
			}
		}
	}
	w.apply(tenure.Release, secret)
	time.Sleep(w.upTo(200 * time.Millisecond))
}

func (w *player) upTo(d time.Duration) time.Duration { return time.Duration(w.random.Int64N(int64(d))) }

// Check must find nothing in histories of sound stores and guards.
func TestSoundStoresAndGuardsAreAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := 0
		for round := 0; round < rounds && refused == 0; round++ {
			st := mem.New(nil)
			ops := play(t, []store.Store{st}, &shelf{})
			expect(t, ops, Scope{})
			for _, op := range ops {
				if op.Kind == Write && op.Outcome == Stale {
					refused++
				}
			}
			if err := st.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if refused == 0 {
			t.Error("no write was refused: the turns are too tame to show anything")
		}
	})
}

// Check must find each broken guard in the histories of its clients.
func TestBrokenGuardsAreFound(t *testing.T) {
	for flaw, want := range map[flaw]Law{
		admitsAll: Kept, twoSteps: Kept, noRaise: Kept, forgetsSeq: Once, writesAnyway: NothingWas, refusesAll: NoFalse,
	} {
		t.Run(string(flaw), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				found := map[Law]bool{}
				for round := 0; round < rounds && !found[want]; round++ {
					st := mem.New(nil)
					found = laws(Check(play(t, []store.Store{st}, &shelf{broken: flaw}), Scope{}))
					if err := st.Close(); err != nil {
						t.Fatal(err)
					}
					if found[Register] || found[Tokens] {
						t.Errorf("the store is accused, too: %v", found)
					}
				}
				if !found[want] {
					t.Errorf("found %v, not %q", found, want)
				}
			})
		})
	}
}

// crooked changes some of the answers of the store that it wraps.
type crooked struct {
	store.Store
	answer func(req tenure.Request, a store.Answer) store.Answer
}

func (c *crooked) Apply(ctx context.Context, requests []tenure.Request) []store.Answer {
	answers := c.Store.Apply(ctx, requests)
	for i := range answers {
		answers[i] = c.answer(requests[i], answers[i])
	}
	return answers
}

// Check must find each broken store in the histories of its clients.
func TestBrokenStoresAreFound(t *testing.T) {
	one := func(answer func(base *mem.Store, req tenure.Request, a store.Answer) store.Answer) func() []store.Store {
		return func() []store.Store {
			base := mem.New(nil)
			return []store.Store{&crooked{base, func(req tenure.Request, a store.Answer) store.Answer { return answer(base, req, a) }}}
		}
	}
	never := errors.New("it never is")
	for name, c := range map[string]struct {
		stores func() []store.Store
		want   Law
	}{
		"two stores that are taken for one": {func() []store.Store { return []store.Store{mem.New(nil), mem.New(nil)} }, Register},
		"a store that forgets everything now and then": {one(func(base *mem.Store, req tenure.Request, a store.Answer) store.Answer {
			if req.Verb == tenure.Renew && rand.IntN(10) == 0 {
				base.Wipe()
			}
			return a
		}), Register},
		"a store that says no and does it all the same": {one(func(_ *mem.Store, req tenure.Request, a store.Answer) store.Answer {
			if req.Verb == tenure.Release && a.Err == nil {
				a.Err = &tenure.NotOwnedError{Record: a.Record, Grant: req.Secret.Grant(), Now: a.Now, Why: tenure.WhyUnknown}
			}
			return a
		}), Register},
		"a store that says yes and does nothing": {one(func(_ *mem.Store, req tenure.Request, a store.Answer) store.Answer {
			if req.Verb == tenure.Renew {
				a.Err = nil
			}
			return a
		}), Register},
		"a store that numbers grants with less than they have": {one(func(_ *mem.Store, req tenure.Request, a store.Answer) store.Answer {
			// This number depends on the grant alone, but does not rise with
			// time.
			a.Record.Token -= fence.Token(len(req.Secret)) + fence.Token(req.Secret.Grant()[0]) - 'f'
			a.Record.Token = a.Record.Token / 10_000_000 * 10_000_000
			return a
		}), Tokens},
		"a store that reserves a key and grants it to others": {one(func(base *mem.Store, req tenure.Request, a store.Answer) store.Answer {
			if req.Verb == tenure.Acquire && a.Record.State == tenure.Reserved && a.Err != nil {
				req.Owner = a.Record.Owner
				return base.Apply(context.Background(), []tenure.Request{req})[0]
			}
			return a
		}), Register},
		"a store that numbers operators' acts with the token before": {one(func(_ *mem.Store, req tenure.Request, a store.Answer) store.Answer {
			if n := len(a.Record.History); req.Verb.ByHand() && a.Err == nil && n > 1 {
				a.Record.Token = a.Record.History[n-2].Token
			}
			return a
		}), Tokens},
		"a store that cannot say": {one(func(_ *mem.Store, _ tenure.Request, a store.Answer) store.Answer {
			if a.Err == nil && rand.IntN(4) == 0 {
				return store.Answer{Err: store.Unknown(never)}
			}
			return a
		}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if c.want == "" {
					expect(t, play(t, c.stores(), &shelf{}), Scope{Unguarded: true})
					return
				}
				found := map[Law]bool{}
				for round := 0; round < rounds && !found[c.want]; round++ {
					found = laws(Check(play(t, c.stores(), &shelf{}), Scope{Unguarded: true}))
				}
				if !found[c.want] {
					t.Errorf("found %v, not %q", found, c.want)
				}
			})
		})
	}
}
