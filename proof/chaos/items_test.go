package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/proof/history"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

const itemQueue = "chaos"

// shift is one process that works on items through the servers, and writes down
// what it was told.
type shift struct {
	t      *testing.T
	name   string
	ledger work.Ledger
	random *rand.Rand
	book   *book
}

// book has the operations of all processes.
type book struct {
	mu  sync.Mutex
	ops []history.ItemOp // guarded by mu
	ids []work.ID        // of the items that were added; guarded by mu
}

func (b *book) note(o history.ItemOp) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ops = append(b.ops, o)
}

// copies counts the requests that had to be sent again.
func (b *book) copies() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, o := range b.ops {
		n += o.Copies - 1
	}
	return n
}

// some returns one of the newest items, or "". Those are the ones that others
// work on.
func (b *book) some(r *rand.Rand) work.ID {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.ids) == 0 {
		return ""
	}
	newest := b.ids[max(0, len(b.ids)-8):]
	return newest[r.IntN(len(newest))]
}

// certain asks again until the outcome is known.
func (s *shift) certain(ask func(ctx context.Context, again bool) error) (copies int, err error) {
	giveUp := time.Now().Add(patience)
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		err := ask(ctx, copies > 0)
		cancel()
		if copies++; !errors.Is(err, store.ErrUnknown) {
			return copies, err
		}
		if time.Now().After(giveUp) {
			s.t.Errorf("%s: nobody answers: %v", s.name, err)
			return copies, err
		}
		time.Sleep(time.Duration(s.random.IntN(30)) * time.Millisecond)
	}
}

// ask sends a request, and writes the operation down.
func (s *shift) ask(q work.Request) (work.Item, bool) {
	o := history.ItemOp{Process: s.name, Item: q.ID, Verb: q.Verb, Token: q.Token, Result: string(q.Result), Begin: history.Now()}
	var it work.Item
	var err error
	o.Copies, err = s.certain(func(ctx context.Context, _ bool) error {
		a := s.ledger.Apply(ctx, []work.Request{q})[0]
		it = a.Item
		return a.Err
	})
	o.End = history.Now()
	o.Refused = errors.Is(err, fence.ErrStale) || errors.Is(err, work.ErrState)
	if err != nil && !o.Refused {
		s.t.Errorf("%s: %s: %v", s.name, q.Verb, err)
		return it, false
	}
	if q.Verb == work.Takeover && err == nil {
		o.Token = it.Record.Token
	}
	s.book.note(o)
	return it, err == nil
}

func (s *shift) add() {
	id := work.NewID()
	if _, ok := s.ask(work.Request{Verb: work.Add, ID: id, Queue: itemQueue, Payload: []byte("item"), Limit: work.MaxTries}); ok {
		s.book.mu.Lock()
		s.book.ids = append(s.book.ids, id)
		s.book.mu.Unlock()
	}
}

// claim takes up to three items, and does something with each.
func (s *shift) claim() {
	c := work.Claim{Queues: []string{itemQueue}, Limit: 3, Secret: tenure.NewSecret(), Owner: s.name, TTL: time.Hour}
	begin := history.Now()
	var items []work.Item
	copies, err := s.certain(func(ctx context.Context, again bool) (err error) {
		c.Again = again
		items, err = s.ledger.Claim(ctx, c)
		return err
	})
	end := history.Now()
	if err != nil {
		s.t.Errorf("%s: claim: %v", s.name, err)
	}
	for _, it := range items {
		s.book.note(history.ItemOp{Process: s.name, Item: it.ID, Verb: history.Claimed, Token: it.Record.Token, Copies: copies, Begin: begin, End: end})
	}
	for _, it := range items {
		s.finish(it.ID, it.Record.Token, c.Secret)
	}
}

// finish ends an attempt in one of several ways. Some owners pause first.
func (s *shift) finish(id work.ID, token fence.Token, secret tenure.Secret) {
	q := work.Request{ID: id, Token: token, Secret: secret}
	if s.random.IntN(2) == 0 {
		time.Sleep(time.Duration(s.random.IntN(200)) * time.Millisecond)
		beat := q
		beat.Verb = work.Heartbeat
		s.ask(beat)
	}
	switch s.random.IntN(6) {
	case 0:
		q.Verb, q.Error, q.Delay = work.Fail, "chaos", time.Millisecond
	case 1:
		q.Verb = work.Release
	default:
		s.complete(q)
		return
	}
	s.ask(q)
}

// complete writes a result that names the attempt, and an effect with it.
func (s *shift) complete(q work.Request) {
	q.Verb, q.Result = work.Complete, fmt.Appendf(nil, "%s under %d", q.ID, q.Token)
	q.Effects = []work.Emission{{Name: "tell", To: "nobody", Body: q.Result}}
	s.ask(q)
}

// take takes an item by hand, and completes it.
func (s *shift) take(id work.ID) {
	q := work.Request{Verb: work.Takeover, ID: id, Secret: tenure.NewSecret(), Actor: s.name, Note: "chaos", TTL: time.Hour}
	if it, ok := s.ask(q); ok {
		s.complete(work.Request{ID: id, Token: it.Record.Token, Secret: q.Secret})
	}
}

// get reads an item.
func (s *shift) get(id work.ID) history.ItemOp {
	o := history.ItemOp{Process: s.name, Item: id, Verb: history.Got, Begin: history.Now()}
	var it work.Item
	var err error
	o.Copies, err = s.certain(func(ctx context.Context, _ bool) (err error) {
		it, err = s.ledger.Get(ctx, id)
		return err
	})
	if err != nil {
		s.t.Errorf("%s: get: %v", s.name, err)
	}
	o.End, o.Done, o.Result = history.Now(), it.State == work.Done, string(it.Result)
	s.book.note(o)
	return o
}

// TestItemsHaveOneOwnerWhateverServerDies: two servers stand on one PostgreSQL,
// and one of them is killed about every second. What workers and operators were
// told must be what one queue could have told them, and every item has the
// effect of one attempt.
func TestItemsHaveOneOwnerWhateverServerDies(t *testing.T) {
	t.Parallel()
	span := 4 * time.Second
	if testing.Short() {
		span = 2 * time.Second
	}
	seed := uint64(time.Now().UnixNano())
	s := &stand{}
	t.Cleanup(s.end)
	var g *testbed
	var err error
	if failed := s.try(func() { g, err = testbedServer(t.Context(), s) }); errors.Is(failed, ErrMissing) {
		t.Skip(failed)
	} else if failed != nil || err != nil {
		t.Fatal(failed, err)
	}
	all := &book{}
	process := func(n int) *shift {
		links, err := g.connect()
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range links {
			t.Cleanup(l.Close)
		}
		url, _ := g.reach(links)
		l, err := work.Open(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return &shift{t: t, name: fmt.Sprintf("p%d", n), ledger: l, random: rand.New(rand.NewPCG(seed, uint64(n))), book: all}
	}
	var shifts sync.WaitGroup
	over := make(chan struct{})
	crew := make([]*shift, 6)
	for n := range crew {
		crew[n] = process(n)
	}
	for n, p := range crew {
		shifts.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				switch k := p.random.IntN(8); {
				case n == 0 && k > 2:
					p.add()
				case k == 0:
					if id := all.some(p.random); id != "" {
						p.get(id)
					}
				case k == 1:
					if id := all.some(p.random); id != "" {
						p.take(id)
					}
				default:
					p.claim()
				}
				time.Sleep(time.Duration(p.random.IntN(20)) * time.Millisecond)
			}
		})
	}
	kills := 0
	servers := g.servers[1:] // the first is PostgreSQL
	for begun := time.Now(); time.Since(begun) < span || all.copies() == 0 && time.Since(begun) < patience; kills++ {
		time.Sleep(700 * time.Millisecond)
		one := servers[kills%len(servers)]
		one.kill()
		time.Sleep(300 * time.Millisecond)
		one.restart()
	}
	close(over)
	shifts.Wait()

	// The operator ends what nobody knows of any more.
	last := process(len(crew))
	for _, id := range all.ids {
		if !last.get(id).Done {
			last.take(id)
		}
	}
	results := map[work.ID]string{}
	for _, id := range all.ids {
		o := last.get(id)
		if !o.Done {
			t.Errorf("item %s is never done", id)
		}
		results[id] = o.Result
	}
	effects := map[work.ID][]string{}
	for x, err := range last.ledger.Effects(t.Context(), work.EffectQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		effects[x.Item] = append(effects[x.Item], string(x.Body))
	}
	for id, result := range results {
		if !slices.Equal(effects[id], []string{result}) {
			t.Errorf("item %s has the result %q and the effects %q", id, result, effects[id])
		}
	}
	for _, v := range history.CheckItems(all.ops, testenv.Patience) {
		t.Errorf("seed %d: %s", seed, v)
	}
	if len(all.ids) == 0 || all.copies() == 0 {
		t.Errorf("%d items, and %d requests sent again: the faults hit nothing", len(all.ids), all.copies())
	}
	t.Logf("%d items, %d operations, %d kills, %d requests sent again", len(all.ids), len(all.ops), kills, all.copies())
}
