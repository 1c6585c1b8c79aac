package sqlite

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/croft-dev/croft/internal/clerk"
	"github.com/croft-dev/croft/internal/wait"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

func init() { work.Register("sqlite", openLedgerURL) }

// Ledger keeps items of work in a SQLite database. Its methods are safe for
// concurrent use, by any number of processes and handles on the same file.
// Requests that come during a transaction share the next one.
type Ledger struct {
	store *Store        // opens the file, and opens it again if it was moved
	mutex chan struct{} // holds a token while a transaction is under way

	mu     sync.Mutex
	queued []*batch // waiting for the next transaction
}

var (
	_ work.Ledger   = (*Ledger)(nil)
	_ work.Surveyor = (*Ledger)(nil)
)

// OpenLedger opens the ledger in a file. It makes a missing file, with
// permissions for the user alone. The file may also be that of a store. o may
// be nil; the ledger does not use options that concern leases only.
func OpenLedger(ctx context.Context, path string, o *Options) (*Ledger, error) {
	s, err := Open(ctx, path, o)
	if err != nil {
		return nil, err
	}
	return newLedger(s), nil
}

// NewLedger makes a ledger in the caller's own database, beside its other
// tables, as [New] makes a store. Transactions for [Ledger.In] should begin as
// writers (_txlock=immediate). Otherwise SQLite refuses to let a transaction
// write after it has read, if another has written in between.
func NewLedger(db *sql.DB, o *Options) *Ledger { return newLedger(New(db, o)) }

func newLedger(s *Store) *Ledger { return &Ledger{store: s, mutex: make(chan struct{}, 1)} }

// openLedgerURL opens the ledger in the file that a store's URL names.
func openLedgerURL(ctx context.Context, u *url.URL) (work.Ledger, error) {
	a, err := parse("ledger", u)
	if err != nil {
		return nil, err
	}
	if u.Fragment != "" {
		return nil, a.bad("it has a fragment, which names a guard and no ledger")
	}
	l, err := OpenLedger(ctx, pathOf(u), &a.options)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// Close closes the file. It gives no item back.
func (l *Ledger) Close() error { return l.store.Close() }

// Now returns the machine's time.
func (l *Ledger) Now(ctx context.Context) (time.Time, error) {
	if err := l.store.usable(ctx); err != nil {
		return time.Time{}, err
	}
	return tenure.Time(l.store.options.now()), nil
}

// In returns the operations on items inside the caller's own transaction on the
// same file. They take effect when the caller commits it.
func (l *Ledger) In(tx *sql.Tx) work.Operations { return &ledgerTx{ledger: l, session: tx} }

// within waits for the mutex and calls do in a transaction of the ledger's own.
// It returns soon after ctx ends. A transaction that has begun goes on.
func (l *Ledger) within(ctx context.Context, do func(ctx context.Context, tx *ledgerTx) error) error {
	if err := l.store.usable(ctx); err != nil {
		return err
	}
	select {
	case l.mutex <- struct{}{}:
	case <-ctx.Done():
		return wait.Ended(ctx)
	}
	done := make(chan error, 1)
	if !l.store.background(func() {
		defer func() { <-l.mutex }()
		bounded, cancel := l.store.untilClosed(l.longest())
		defer cancel()
		done <- l.transact(bounded, do)
	}) {
		<-l.mutex
		return ErrClosed
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return wait.Ended(ctx)
	}
}

// longest limits how long a transaction may take whose caller may have left. It
// may wait for other processes, and then for the disk.
func (l *Ledger) longest() time.Duration { return l.store.options.LockWait + time.Minute }

// transact makes one transaction.
func (l *Ledger) transact(ctx context.Context, do func(ctx context.Context, tx *ledgerTx) error) error {
	err := l.store.withDatabase(ctx, func(b *base) error {
		conn, err := b.db.Conn(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		if !b.own { // the caller may have set something else
			if _, err := conn.ExecContext(ctx, "PRAGMA synchronous = FULL"); err != nil {
				return err
			}
		}
		err = retryBusy(ctx, l.store.options.LockWait, func() error {
			_, err := conn.ExecContext(ctx, sqlBegin)
			return err
		})
		if err != nil {
			return err
		}
		err = l.store.checkSideFiles(b, b.sideFiles) // before anything is damaged
		if err == nil {
			err = do(ctx, &ledgerTx{ledger: l, session: conn})
		}
		if err == nil {
			_, err = conn.ExecContext(ctx, sqlCommit)
		}
		if err != nil {
			if _, failed := conn.ExecContext(context.WithoutCancel(ctx), sqlRollback); failed != nil {
				// The transaction may be over already. If it is not, the
				// connection keeps the file locked, so it must not go back into
				// the pool.
				_ = conn.Raw(func(any) error { return sqldriver.ErrBadConn })
			}
			return err
		}
		return l.store.checkMoved(b)
	})
	if err != nil && errors.Is(l.store.usable(context.Background()), ErrClosed) {
		return ErrClosed // err may be about an inner context that the caller does not know
	}
	return err
}

// batch holds the requests of one call, and their answers. The goroutine that
// carries it out sets answers and err, then closes done.
type batch struct {
	requests []work.Request
	answers  []work.Answer
	todo     []int
	err      error
	done     chan struct{}
}

// Apply carries out requests in one transaction, together with those of other
// callers. If ctx ends first, the answers match [store.ErrUnknown], and the
// requests may still take effect.
func (l *Ledger) Apply(ctx context.Context, requests []work.Request) []work.Answer {
	// The batch may outlive this call, and the caller may then change its
	// slice.
	b := &batch{
		requests: slices.Clone(requests),
		answers:  make([]work.Answer, len(requests)),
		done:     make(chan struct{}),
	}
	b.todo = clerk.Checked(requests, b.answers)
	if len(b.todo) == 0 {
		return b.answers
	}
	if err := l.store.usable(ctx); err != nil {
		return clerk.Failed(b.answers, b.todo, err)
	}
	l.mu.Lock()
	l.queued = append(l.queued, b)
	l.mu.Unlock()
	select {
	case l.mutex <- struct{}{}:
		if !l.store.background(func() {
			defer func() { <-l.mutex }()
			// One transaction may not reach b if many batches are before it,
			// and no other goroutine may come to make the next.
			for l.isQueued(b) {
				l.carryOutQueued()
			}
		}) {
			<-l.mutex
			return clerk.Failed(b.answers, b.todo, ErrClosed)
		}
	case <-b.done: // another caller's transaction has included it
	case <-ctx.Done():
	}
	select {
	case <-b.done:
		if b.err != nil {
			return clerk.Failed(b.answers, b.todo, b.err)
		}
		return b.answers
	case <-ctx.Done():
		l.mu.Lock()
		// It must not be carried out long after its caller has left.
		l.queued = slices.DeleteFunc(l.queued, func(other *batch) bool { return other == b })
		l.mu.Unlock()
		answers := make([]work.Answer, len(requests)) // b.answers may still be written to
		return clerk.Failed(answers, clerk.Checked(requests, answers), wait.Ended(ctx))
	}
}

// isQueued reports whether a batch is still in the queue.
func (l *Ledger) isQueued(b *batch) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Contains(l.queued, b)
}

// carryOutQueued carries out the waiting batches in one transaction, as many as
// fit. If that fails, it tries each batch in a transaction of its own. It does
// not if another process has the lock: each batch would then wait for it in
// turn, long after its caller has left.
func (l *Ledger) carryOutQueued() {
	l.mu.Lock()
	n, size := 0, 0
	for n < len(l.queued) && (n == 0 || size+len(l.queued[n].todo) <= mostInTransaction) {
		size += len(l.queued[n].todo)
		n++
	}
	all := slices.Clone(l.queued[:n])
	l.queued = slices.Delete(l.queued, 0, n)
	l.mu.Unlock()
	if len(all) == 0 {
		return
	}
	ctx, cancel := l.store.untilClosed(l.longest())
	defer cancel()
	defer func() {
		for _, b := range all {
			close(b.done)
		}
	}()
	if len(all) > 1 {
		joined := &batch{}
		for _, b := range all {
			for _, i := range b.todo {
				joined.todo = append(joined.todo, len(joined.requests))
				joined.requests = append(joined.requests, b.requests[i])
			}
		}
		joined.answers = make([]work.Answer, len(joined.requests))
		err := l.carryOut(ctx, joined)
		if isBusy(err) || errors.Is(err, ErrBusy) {
			for _, b := range all {
				b.err = err
			}
			return
		}
		if err == nil {
			n := 0
			for _, b := range all {
				for _, i := range b.todo {
					b.answers[i] = joined.answers[n]
					n++
				}
			}
			return
		}
	}
	for _, b := range all {
		b.err = l.carryOut(ctx, b)
	}
}

func (l *Ledger) carryOut(ctx context.Context, b *batch) error {
	return l.transact(ctx, func(ctx context.Context, tx *ledgerTx) error {
		_, err := clerk.Apply(ctx, tx, b.requests, b.answers, b.todo)
		return err
	})
}
