//go:build unix

package chaostest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/work"
)

// The size of a scene. Every round adds items and has one fault.
const (
	crew     = 5
	perRound = 8
	atLeast  = 10 // rounds, so that each kind of fault occurs
)

// number reads a number from an environment variable.
func number(t *testing.T, name string, otherwise uint64) uint64 {
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s=%s: %v", name, text, err)
	}
	return n
}

// TestPostgresUnderChaos: workers, reconciler and dispatchers are stopped past
// their deadlines and killed, operators reassign, and the server dies. Every
// item is done exactly once in effect.
func TestPostgresUnderChaos(t *testing.T) {
	t.Parallel()
	server := testenv.NewPostgres(t)
	chaos(t, server.Database(t), func() {
		server.Kill(t)
		server.Start(t)
	})
}

// TestSQLiteUnderChaos: the same on one host, where a process that is stopped
// in its transaction keeps all others waiting.
func TestSQLiteUnderChaos(t *testing.T) {
	t.Parallel()
	chaos(t, "sqlite://"+filepath.Join(memoryDir(t), "ledger.db"), nil)
}

func chaos(t *testing.T, url string, restart func()) {
	items := int(number(t, "CROFT_CHAOS_ITEMS", 80))
	if items < perRound {
		t.Fatalf("CROFT_CHAOS_ITEMS=%d: there must be at least %d", items, perRound)
	}
	seed := number(t, "CROFT_CHAOS_SEED", rand.Uint64())
	t.Logf("%d items; CROFT_CHAOS_SEED=%d", items, seed)
	s := newScene(t, url, seed)
	begun := time.Now()
	phase := func(what string) { t.Logf("%.1f s: %s", time.Since(begun).Seconds(), what) }

	// Two owners are certainly overtaken while they sleep: one by the
	// reconciler, one by an operator.
	wakeLapsed := s.overtaken("sleeper/lapsed", s.changed)
	wakeReassigned := s.overtaken("sleeper/reassigned", func(ctx context.Context, was work.Item) error {
		return errors.Join(s.reassign(ctx, was), s.changed(ctx, was))
	})
	s.reconciler = s.start("reconciler", "reconciler")
	for i := range 2 {
		s.dispatchers = append(s.dispatchers, s.start("dispatcher", fmt.Sprintf("dispatcher-%d", i)))
	}
	for i := range crew {
		s.workers = append(s.workers, s.start("worker", s.workerName(i)))
	}
	phase("all are there")
	rounds := max(atLeast, items/perRound)
	left := items - len(s.added)
	for round, fault := range s.faults(rounds, restart) {
		s.add(left*(round+1)/rounds - left*round/rounds)
		fault()
		time.Sleep(time.Duration(s.random.IntN(300)) * time.Millisecond)
	}
	s.thaw()
	phase("the faults are over")
	wakeLapsed()
	wakeReassigned()
	phase("who was overtaken has been refused")
	s.settled()
	phase("nothing is left to do")
	for _, p := range append(append([]*testenv.Process{s.reconciler}, s.workers...), s.dispatchers...) {
		p.Stop()
	}
	s.verdict(items)
	phase("judged")
}

// changed waits until the item has a newer token.
func (s *scene) changed(ctx context.Context, was work.Item) error {
	for {
		it, err := s.shop.ledger().Get(ctx, was.ID)
		if err == nil && it.Record.Token > was.Record.Token {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("its token is still %d: %w", was.Record.Token, errors.Join(err, ctx.Err()))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// faults returns a shuffled list of n faults in which every kind occurs.
func (s *scene) faults(n int, restart func()) []func() {
	anybody := func() *testenv.Process { return s.workers[s.random.IntN(len(s.workers))] }
	kill := func(p *testenv.Process) {
		p.Kill()
		p.Run(s.T, atOnce)
	}
	freeze := func(p *testenv.Process) {
		if timer := s.frozen[p]; timer != nil {
			timer.Stop()
		}
		p.Pause(s.T)
		s.frozen[p] = time.AfterFunc(ttl+time.Duration(s.random.IntN(1000))*time.Millisecond, p.Resume)
	}
	kinds := []func(){
		func() { kill(anybody()) },
		func() { freeze(anybody()) },
		s.reassignSome,
		func() { kill(s.dispatchers[s.random.IntN(len(s.dispatchers))]) },
		func() { kill(anybody()) },
		func() { freeze(anybody()) },
		s.reassignSome,
		func() { freeze(s.dispatchers[s.random.IntN(len(s.dispatchers))]) },
		func() { kill(s.reconciler) },
		s.reassignSome,
	}
	if restart != nil {
		kinds[len(kinds)-1] = restart
	}
	faults := make([]func(), n)
	for i := range faults {
		faults[i] = kinds[i%len(kinds)]
	}
	s.random.Shuffle(n, func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
	return faults
}

// reassignSome takes a few items from their owners. It may find none, and an
// item may end before it is taken. A stopped process may keep the ledger
// locked. It then gives up.
func (s *scene) reassignSome() {
	ctx, cancel := context.WithTimeout(s.Context(), time.Second)
	defer cancel()
	for it, err := range s.shop.ledger().List(ctx, work.Query{Queue: queue, States: []work.State{work.Running}}) {
		if err != nil {
			return
		}
		if s.random.IntN(3) == 0 && s.isWorker(it.Record.Owner) && s.reassign(ctx, it) == nil {
			s.reassigned++
		}
	}
}

func (s *scene) isWorker(owner string) bool {
	for i := range s.workers {
		if owner == s.workerName(i) {
			return true
		}
	}
	return false
}

// settled waits until nothing is left to do. It fails if nothing has changed
// for long, whatever the speed.
func (s *scene) settled() {
	s.Helper()
	var was string
	for moved := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(s.Context(), 10*time.Second)
		stats, err := s.shop.ledger().Stats(ctx, queue)
		cancel()
		if err == nil && len(stats) == 1 {
			q := stats[0]
			if q.Done+q.Dead+q.Cancelled == int64(len(s.added)) && q.Pending+q.Unknown == 0 {
				return
			}
			if now := fmt.Sprint(q.Ready, q.Scheduled, q.Running, q.Done, q.Pending, q.Unknown, q.Sent); now != was {
				was, moved = now, time.Now()
			}
		}
		if time.Since(moved) > 2*testenv.Patience {
			for _, p := range append(append([]*testenv.Process{s.reconciler}, s.workers...), s.dispatchers...) {
				s.Logf("%.2000s", p.Output())
			}
			s.Fatalf("stuck at %+v: %v", stats, err)
		}
	}
}

// verdict collects the evidence and judges it.
func (s *scene) verdict(items int) {
	s.Helper()
	ctx := s.Context()
	e := evidence{added: s.added, delivered: s.hook.got, confirmed: s.confirmations()}
	if len(s.added) != items {
		s.Errorf("%d items were added, want %d", len(s.added), items)
	}
	for it, err := range s.shop.ledger().List(ctx, work.Query{}) {
		if err != nil {
			s.Fatal(err)
		}
		e.items = append(e.items, s.get(it.ID))
	}
	for x, err := range s.shop.ledger().Effects(ctx, work.EffectQuery{}) {
		if err != nil {
			s.Fatal(err)
		}
		e.effects = append(e.effects, x)
	}
	var err error
	if e.tally, err = s.shop.tally(ctx); err != nil {
		s.Fatal(err)
	}
	s.hook.mu.Lock()
	defer s.hook.mu.Unlock()
	for _, what := range judge(e) {
		s.Error(what)
	}
	for _, what := range s.hook.bad {
		s.Errorf("a webhook's signature: %s", what)
	}
	refused := map[work.Verb]int{}
	for r, err := range s.shop.ledger().Refusals(ctx, work.RefusalQuery{}) {
		if err != nil {
			s.Fatal(err)
		}
		refused[r.Verb]++
	}
	if len(refused) == 0 {
		s.Error("nothing was refused")
	}
	attempts := 0
	for _, it := range e.items {
		attempts += it.Attempts
	}
	if len(e.confirmed) == 0 {
		s.Error("no worker was told that anything counts")
	}
	s.Logf("%d items in %d attempts, %d deliveries, %d reassigned by chance, refused: %v", len(e.items), attempts, s.hook.many, s.reassigned, refused)
}

// confirmations reads which attempts the ledger has confirmed to workers, by
// item.
func (s *scene) confirmations() map[work.ID][]fence.Token {
	s.Helper()
	f, err := os.Open(s.journal)
	if err != nil {
		s.Fatal(err)
	}
	defer f.Close()
	told := map[work.ID][]fence.Token{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line, whole := strings.CutSuffix(lines.Text(), " .")
		if !whole {
			continue
		}
		var id work.ID
		var token fence.Token
		if _, err := fmt.Sscan(line, &id, &token); err != nil {
			s.Fatalf("journal: %q: %v", line, err)
		}
		told[id] = append(told[id], token)
	}
	return told
}
