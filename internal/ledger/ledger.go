// Package ledger keeps work items in memory, by a law that can be replaced.
// With the law of package work it is the ledger of backend/mem, and the
// reference of the conformance suite. With a broken law it is a ledger that the
// suite must catch.
//
// All handles on a ledger share one state behind one mutex. Every call holds
// the mutex from beginning to end, so calls are atomic and happen one after the
// other. A caller's transaction works on a copy of the tables, which replaces
// them at the commit. Each handle has a second, short mutex for its closed
// flag. The only callbacks from other goroutines are those that end a Wake when
// its context ends.
package ledger

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// Law is every decision of a ledger. [Sound] is the law of package work.
type Law struct {
	Apply  func(it work.Item, req work.Request, now time.Time) (work.Outcome, error)
	Grant  func(it work.Item, c work.Claim, now time.Time) (work.Item, error)
	Admit  func(q work.Taking, mark fence.Mark, now time.Time) (fence.Mark, *work.Refusal, error)
	Takes  func(q work.Taking, e work.Effect, now time.Time) bool
	Next   func(q work.Taking, all iter.Seq[work.Effect], now time.Time) (work.Effect, bool)
	Take   func(e work.Effect, q work.Taking, now time.Time) work.Effect
	Settle func(e work.Effect, mark fence.Mark, s work.Settlement, now time.Time) (work.EffectOutcome, error)
	// Emit puts an effect into the outbox.
	Emit func(there map[work.EffectID]work.Effect, e work.Effect)
	// Record reports whether to record a refusal, which may be nil.
	Record func(r *work.Refusal) bool
	Forget func(r work.Retention, it work.Item, effects []work.Effect, now time.Time) bool
	Govern func(r work.Rule, c work.RuleChange, now time.Time) (work.Rule, error)
	// Rule is what the gate of a claim is told of a rule, and Running what it
	// is told of the number of running items. Turns is the order of claims.
	Rule    func(r work.Rule) work.Rule
	Running func(n int) int
	Turns   func(items []work.Item, last func(queue, partition string, priority int) time.Time)
	Commit  func(err error) bool // whether a transaction that returned err counts
	Wakes   bool                 // whether changes wake waiters
}

// Sound returns the law of package work.
func Sound() Law {
	return Law{
		Apply: work.Apply, Grant: work.Grant,
		Admit: work.Taking.Admit, Takes: work.Taking.Takes, Next: work.Taking.Next, Take: work.Take,
		Settle: work.Settle,
		Emit: func(there map[work.EffectID]work.Effect, e work.Effect) {
			if _, known := there[e.EffectID]; !known {
				there[e.EffectID] = e
			}
		},
		Record: func(r *work.Refusal) bool { return r != nil },
		Forget: func(r work.Retention, it work.Item, effects []work.Effect, now time.Time) bool {
			return r.Forgets(it, now) && !slices.ContainsFunc(effects, work.Effect.Keeps)
		},
		Govern: work.Govern,
		Rule:   func(r work.Rule) work.Rule { return r }, Running: func(n int) int { return n }, Turns: work.Turns,
		Commit: func(err error) bool { return err == nil },
		Wakes:  true,
	}
}

// shared is the state that all handles on a ledger share.
type shared struct {
	law Law
	now func() time.Time

	mu sync.Mutex
	tables
	waiting map[*waiter]struct{}
}

// tables are the rows of a ledger. A transaction works on a copy.
type tables struct {
	items    map[work.ID]work.Item
	effects  map[work.EffectID]work.Effect
	marks    map[string]fence.Mark
	rules    map[ruleKey]work.Rule
	served   map[group]time.Time // the last start of each partition
	starts   map[startKey]int
	refusals []work.Refusal
}

func (p tables) copied() tables {
	return tables{
		items: maps.Clone(p.items), effects: maps.Clone(p.effects), marks: maps.Clone(p.marks),
		rules: maps.Clone(p.rules), served: maps.Clone(p.served), starts: maps.Clone(p.starts),
		refusals: slices.Clone(p.refusals),
	}
}

// Ledger is a handle on items in memory.
type Ledger struct {
	shared *shared
	mu     sync.Mutex
	closed bool
}

var (
	_ work.Ledger   = (*Ledger)(nil)
	_ work.Waker    = (*Ledger)(nil)
	_ work.Surveyor = (*Ledger)(nil)
)

// New makes an empty ledger with a clock and a law.
func New(now func() time.Time, law Law) *Ledger {
	return &Ledger{shared: &shared{
		law: law, now: now, waiting: map[*waiter]struct{}{},
		tables: tables{
			items: map[work.ID]work.Item{}, effects: map[work.EffectID]work.Effect{},
			marks: map[string]fence.Mark{},
			rules: map[ruleKey]work.Rule{}, served: map[group]time.Time{}, starts: map[startKey]int{},
		},
	}}
}

// Open returns another handle on the same items, as another client would have.
func (l *Ledger) Open() *Ledger { return &Ledger{shared: l.shared} }

// Close closes the handle and no other.
func (l *Ledger) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	return nil
}

var errClosed = errors.New("the ledger is closed; open it again")

// usable returns an error if the context has ended or the handle is closed.
func (l *Ledger) usable(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return store.Unknown(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return store.Unknown(errClosed)
	}
	return nil
}

// Now returns the time on the ledger's clock.
func (l *Ledger) Now(ctx context.Context) (time.Time, error) {
	if err := l.usable(ctx); err != nil {
		return time.Time{}, err
	}
	return tenure.Time(l.shared.now()), nil
}

// Apply carries out requests.
func (l *Ledger) Apply(ctx context.Context, requests []work.Request) []work.Answer {
	if err := l.usable(ctx); err != nil {
		return work.FailedAnswers(len(requests), err)
	}
	l.shared.mu.Lock()
	defer l.shared.mu.Unlock()
	defer l.shared.wake()
	return session{l.shared, &l.shared.tables}.Apply(ctx, requests)
}

// Claim claims items.
func (l *Ledger) Claim(ctx context.Context, c work.Claim) ([]work.Item, error) {
	if err := l.usable(ctx); err != nil {
		return nil, err
	}
	l.shared.mu.Lock()
	defer l.shared.mu.Unlock()
	return session{l.shared, &l.shared.tables}.Claim(ctx, c)
}

// Get returns one item.
func (l *Ledger) Get(ctx context.Context, id work.ID) (work.Item, error) {
	if err := l.usable(ctx); err != nil {
		return work.Item{}, err
	}
	l.shared.mu.Lock()
	defer l.shared.mu.Unlock()
	return session{l.shared, &l.shared.tables}.Get(ctx, id)
}

// Within calls do in a transaction. If do returns nil, its changes count;
// otherwise none does. No other call runs meanwhile, so do must use only the
// Operations it is given.
func (l *Ledger) Within(ctx context.Context, do func(work.Operations) error) error {
	if err := l.usable(ctx); err != nil {
		return err
	}
	l.shared.mu.Lock()
	defer l.shared.mu.Unlock()
	next := l.shared.copied()
	err := do(session{l.shared, &next})
	if l.shared.law.Commit(err) {
		l.shared.tables = next
		l.shared.wake()
	}
	return err
}
