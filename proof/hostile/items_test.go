package hostile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "github.com/croft-dev/croft/backend/postgres"
	_ "github.com/croft-dev/croft/backend/sqlite"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// TestNobodyOpensWhatAHostileItemNames: somebody who can add items names hosts
// and paths of its own as guards. Neither a worker nor an operator nor the
// reconciler opens any of them, although they have credentials of every kind.
// Each says so, and what to do.
func TestNobodyOpensWhatAHostileItemNames(t *testing.T) {
	t.Parallel()
	for name, ledger := range map[string]func(t *testing.T) string{
		"sqlite": func(t *testing.T) string {
			shared := t.TempDir()
			if err := os.Chmod(shared, 0o777); err != nil {
				t.Fatal(err)
			}
			return "sqlite://" + filepath.Join(shared, "work.db")
		},
		"postgres": func(t *testing.T) string { return testenv.Postgres(t).Database(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bin, evil, away, url := built(t), newAttacker(t), t.TempDir(), ledger(t)
			l, err := work.Open(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			m := mallory{t, l, hostileTargets(evil, away)}
			for worker, args := range map[string][]string{
				"run": {"--once", "--no-reconcile", "--", "touch", filepath.Join(away, "begun")}, "claim": nil,
			} {
				id := m.added(worker)
				code, out := asOperator(t, bin, append([]string{"work", worker, worker, "--store", url}, args...)...)
				if code != 1 || strings.Count(out, "nobody here allowed it") != len(m.targets) || !strings.Contains(out, "--raise") {
					t.Errorf("%s: exit code %d\n%s", worker, code, out)
				}
				if it := m.get(id); it.State != work.Waiting || it.Attempts != 0 {
					t.Errorf("%s: the item is %s after %d attempts", worker, it.State, it.Attempts)
				}
			}
			for act, args := range map[string][]string{
				"reassign": {"--to", "bob"}, "cancel": nil, "takeover": nil, "replay": {"--again"},
			} {
				id := m.owned(act, time.Hour, act == "replay")
				args = append([]string{"work", act, string(id), "--store", url, "--note", "the host is down"}, args...)
				if code, out := asOperator(t, bin, args...); code != 1 || strings.Count(out, "fence NOT raised") != len(m.targets) {
					t.Errorf("%s: exit code %d\n%s", act, code, out)
				}
				if it := m.get(id); it.Record.Owner == "mallory" && it.State == work.Running {
					t.Errorf("after %s mallory has the item", act)
				}
			}
			id := m.owned("lapses", tenure.MinTTL, false)
			for now := time.Now(); !m.get(id).Lapsed(now); time.Sleep(time.Millisecond) {
				if now, err = l.Now(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			code, out := asOperator(t, bin, "work", "reconcile", "--queue", "lapses", "--store", url)
			if code != 1 || strings.Count(out, "nobody here allowed it") != len(m.targets) || m.get(id).State != work.Waiting {
				t.Errorf("reconcile: exit code %d, the item is %s\n%s", code, m.get(id).State, out)
			}
			evil.nothing(t, away)
		})
	}
}

// mallory adds items that name hostile targets.
type mallory struct {
	*testing.T
	ledger  work.Ledger
	targets []string
}

func (m mallory) apply(req work.Request) {
	m.Helper()
	if a := m.ledger.Apply(m.Context(), []work.Request{req})[0]; a.Err != nil {
		m.Fatal(a.Err)
	}
}

func (m mallory) added(queue string) work.ID {
	m.Helper()
	id := work.NewID()
	m.apply(work.Request{Verb: work.Add, ID: id, Queue: queue, Guards: m.targets})
	return id
}

// owned adds an item, claims it, and completes it if asked to.
func (m mallory) owned(queue string, ttl time.Duration, done bool) work.ID {
	m.Helper()
	id, secret := m.added(queue), tenure.NewSecret()
	items, err := m.ledger.Claim(m.Context(), work.Claim{Queues: []string{queue}, Limit: 1, Secret: secret, Owner: "mallory", TTL: ttl})
	if err != nil || len(items) != 1 {
		m.Fatal(items, err)
	}
	if done {
		m.apply(work.Request{Verb: work.Complete, ID: id, Token: items[0].Record.Token, Secret: secret})
	}
	return id
}

func (m mallory) get(id work.ID) work.Item {
	m.Helper()
	it, err := m.ledger.Get(m.Context(), id)
	if err != nil {
		m.Fatal(err)
	}
	return it
}
