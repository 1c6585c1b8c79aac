//go:build unix

package chaostest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// scene has a ledger, the processes around it, and the faults.
type scene struct {
	*testing.T
	url     string
	shop    shop
	hook    *receiver
	journal string
	random  *rand.Rand

	workers     []*testenv.Process
	reconciler  *testenv.Process
	dispatchers []*testenv.Process
	frozen      map[*testenv.Process]*time.Timer // the timer wakes the process
	added       map[work.ID]string
	reassigned  int
}

func newScene(t *testing.T, url string, seed uint64) *scene {
	s := &scene{
		T: t, url: url, hook: newReceiver(t), journal: filepath.Join(t.TempDir(), "journal"), random: rand.New(rand.NewPCG(seed, 0)),
		frozen: map[*testenv.Process]*time.Timer{}, added: map[work.ID]string{},
	}
	if err := os.WriteFile(s.journal, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	shop, err := openShop(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(shop.close)
	s.shop = shop
	if _, err := shop.ledger().Stats(t.Context(), ""); err != nil { // makes the tables
		t.Fatal(err)
	}
	if err := shop.makeTally(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// start starts a process of the scene. It does not wait until the process is
// ready; the checks wait for its effects.
func (s *scene) start(role, name string, env ...string) *testenv.Process {
	s.Helper()
	command := func() *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=10", envRole+"="+role, envName+"="+name, envPlace+"="+s.url, envHook+"="+s.hook.URL, envJournal+"="+s.journal)
		cmd.Env = append(cmd.Env, env...)
		return cmd
	}
	return testenv.Start(s.T, name, command, atOnce)
}

func atOnce() error { return nil }

// eventually calls the ledger again and again, because it may be down for a
// moment.
func (s *scene) eventually(what string, try func(ctx context.Context) error) {
	s.Helper()
	testenv.Eventually(s.T, what, func() error {
		ctx, cancel := context.WithTimeout(s.Context(), 10*time.Second)
		defer cancel()
		return try(ctx)
	})
}

// add adds items. It repeats the request until the ledger has confirmed all of
// them.
func (s *scene) add(n int) (ids []work.ID) {
	s.Helper()
	kinds := []string{"plain", "tallied", "fails first", "plain", "tallied"}
	requests := make([]work.Request, n)
	for i := range requests {
		payload := fmt.Sprintf("%s item %d", kinds[len(s.added)%len(kinds)], len(s.added))
		requests[i] = work.Request{Verb: work.Add, ID: work.NewID(), Queue: queue, Unique: payload, Payload: []byte(payload), Limit: limit}
		s.added[requests[i].ID] = payload
		ids = append(ids, requests[i].ID)
	}
	s.eventually("items are added", func(ctx context.Context) error {
		var failed error
		for _, a := range s.shop.ledger().Apply(ctx, requests) {
			failed = errors.Join(failed, a.Err)
		}
		return failed
	})
	return ids
}

// get reads an item.
func (s *scene) get(id work.ID) (it work.Item) {
	s.Helper()
	s.eventually("an item is read", func(ctx context.Context) (err error) {
		it, err = s.shop.ledger().Get(ctx, id)
		return err
	})
	return it
}

// reassign gives an item to one of the workers, unless it has changed hands
// already.
func (s *scene) reassign(ctx context.Context, was work.Item) error {
	if it, err := s.shop.ledger().Get(ctx, was.ID); err != nil || it.Record.Token != was.Record.Token {
		return err
	}
	return s.shop.ledger().Apply(ctx, []work.Request{{
		Verb: work.Reassign, ID: was.ID, Secret: tenure.NewSecret(), Owner: s.workerName(s.random.IntN(len(s.workers))), TTL: 300 * time.Millisecond,
		Actor: "olga", Note: "chaos",
	}})[0].Err
}

func (s *scene) workerName(i int) string { return fmt.Sprintf("worker-%d", i) }

// thaw wakes all stopped processes.
func (s *scene) thaw() {
	for p, timer := range s.frozen {
		timer.Stop()
		p.Resume()
	}
}

// overtaken gives an item to a sleeper, and returns a function to wake it. That
// function first stops the sleeper's process until take returns: then the item
// belongs to somebody else. It then wakes the sleeper, which must be refused.
func (s *scene) overtaken(name string, take func(ctx context.Context, was work.Item) error) (wake func()) {
	s.Helper()
	id := s.add(1)[0]
	file := filepath.Join(s.TempDir(), "go")
	p := s.start("sleeper", name, envGo+"="+file)
	var was work.Item
	s.eventually("the sleeper has its item", func(context.Context) error {
		if was = s.get(id); was.State != work.Running || was.Record.Owner != name {
			return fmt.Errorf("it is %s, of %q; the sleeper says %s", was.State, was.Record.Owner, p.Output())
		}
		return nil
	})
	return func() {
		s.Helper()
		s.eventually("the item is taken from the sleeper", func(ctx context.Context) error {
			// The process may be stopped in the middle of a transaction, and
			// keep everybody out. Then it goes on for a moment and is stopped
			// again.
			p.Pause(s.T)
			moment, cancel := context.WithTimeout(ctx, 3*ttl)
			defer cancel()
			err := take(moment, was)
			if err != nil {
				p.Resume()
				time.Sleep(50 * time.Millisecond)
			}
			return err
		})
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			s.Fatal(err)
		}
		p.Resume()
		s.eventually("the sleeper is refused", func(ctx context.Context) error {
			for r, err := range s.shop.ledger().Refusals(ctx, work.RefusalQuery{Item: id}) {
				if err != nil {
					return err
				}
				if r.Presented == was.Record.Token && r.PresentedOwner == name && r.Why == "stale" {
					return nil
				}
			}
			return fmt.Errorf("no refusal is recorded; the sleeper says %s", p.Output())
		})
		p.Stop() // otherwise it would go on as a worker
	}
}
