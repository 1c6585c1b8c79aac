package sqlite

import (
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	codes "modernc.org/sqlite/lib"

	"github.com/croft-dev/croft/internal/wait"
	"github.com/croft-dev/croft/tenure"
)

// mostInTransaction limits the requests in one transaction, so that other
// processes get their turn. A single call may have more.
const mostInTransaction = 1000

// task is work to be done in a transaction, which it may share with others.
type task struct {
	ctx  context.Context
	size int // how many requests it counts for
	do   func(*transaction)
	from time.Time // when it joined the queue
	err  error     // set before done is closed; if not nil, the outcome is unknown
	done chan struct{}
}

// do queues a task and returns when its transaction is on the disk, when ctx
// ends, or when the store is closed. A task that has begun goes on when its
// caller leaves.
func (s *Store) do(ctx context.Context, size int, do func(*transaction)) error {
	t := &task{ctx: ctx, size: size, do: do, from: time.Now(), done: make(chan struct{})}
	if !s.join(t) {
		return ErrClosed
	}
	select {
	case <-t.done:
		return t.err
	case <-ctx.Done():
	case <-s.closing:
	}
	select {
	case <-t.done: // both may have happened at once
		return t.err
	default:
	}
	s.leave(t)
	if ctx.Err() != nil {
		return s.gaveUp(ctx)
	}
	return ErrClosed
}

// join puts a task into the queue, and starts the goroutine of work if it is
// the first. It reports false if the store is closed.
func (s *Store) join(t *task) bool {
	s.mu.Lock()
	s.queue = append(s.queue, t)
	start := !s.working
	s.working = true
	s.mu.Unlock()
	if start && !s.background(s.work) {
		return false
	}
	select {
	case s.asked <- struct{}{}:
	default: // there is a token already
	}
	return true
}

// leave takes a task out of the queue. While the disk hangs, tasks of callers
// that have left must not pile up there.
func (s *Store) leave(t *task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.queue, t); i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
	}
}

// next takes the oldest task out of the queue. It returns nil if there is none.
func (s *Store) next() *task {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return nil
	}
	t := s.queue[0]
	s.queue = slices.Delete(s.queue, 0, 1)
	return t
}

// work makes transactions until the store is closed. It is the body of the
// store's one writing goroutine.
func (s *Store) work() {
	defer func() {
		if s.writer != nil {
			s.writer.discard()
		}
	}()
	for {
		select {
		case <-s.asked:
		case <-s.closing: // callers with queued tasks see that, too
			return
		}
		for t := s.next(); t != nil; t = s.next() {
			s.runTasks(t)
		}
	}
}

// runTasks makes one transaction for a task and those that come meanwhile, and
// ends all of them.
func (s *Store) runTasks(t *task) {
	if err := s.usable(t.ctx); err != nil {
		if t.ctx.Err() != nil { // say what the task waited for
			err = s.gaveUp(t.ctx)
		}
		t.finish(err)
		return
	}
	w, err := s.connected(t.ctx, s.writer)
	s.tasks = append(s.tasks[:0], t)
	tasks := s.tasks
	if s.writer = w; err == nil {
		tasks, err = s.carryOut(w, tasks)
	}
	if err != nil && w != nil && !isWaiting(err) {
		if !isAbandoned(w.base.info) {
			w.discard() // its state is not known
		}
		s.writer = nil
	}
	for _, q := range tasks {
		q.finish(err)
	}
	if len(tasks) > 1 {
		runtime.Gosched() // lets the callers ask again before the next transaction begins, and share it
	}
	clear(tasks)
	s.tasks = tasks
}

// gaveUp returns an error that says that ctx has ended. If it is known which
// process or what delay kept the request waiting, it names that.
func (s *Store) gaveUp(ctx context.Context) error {
	s.mu.Lock()
	b := s.base
	s.mu.Unlock()
	switch since := s.inside.Load(); {
	case b == nil:
	case b.held():
		return fmt.Errorf("%w; store %s: %w: %s", wait.Ended(ctx), b.name(), ErrBusy, b.holder())
	case since != nil && time.Since(*since) > tooLong:
		return fmt.Errorf("%w; store %s: a transaction has been on its way to the disk for %s: "+
			"the disk hangs, or others keep it busy; look at it and at the system's log",
			wait.Ended(ctx), b.name(), time.Since(*since).Round(time.Millisecond))
	}
	return wait.Ended(ctx)
}

// tooLong is the age from which on gaveUp mentions a running transaction.
const tooLong = 100 * time.Millisecond

// isWaiting reports whether a task failed before it had the write lock. The
// connection can then be used again.
func isWaiting(err error) bool {
	return errors.Is(err, ErrBusy) || errors.Is(err, ErrClosed) || errors.Is(err, errGaveUp)
}

func (t *task) finish(err error) {
	if t.err == nil {
		t.err = err
	}
	close(t.done)
}

// connected returns w if it still writes to the open database. Otherwise it
// discards w and makes a new writer, on the file that is at the path now. On an
// error it returns the writer that the caller must still discard, or nil.
func (s *Store) connected(ctx context.Context, w *writer) (*writer, error) {
	if w != nil {
		s.mu.Lock()
		same := s.base == w.base
		s.mu.Unlock()
		if same {
			return w, nil
		}
	}
	b, err := s.database(ctx)
	if err != nil {
		return w, err
	}
	if w != nil {
		w.discard()
	}
	w, err = newWriter(ctx, b, &s.options)
	if lacksTable(err) { // somebody has removed the tables
		if err := b.prepare(ctx); err != nil {
			return nil, err
		}
		w, err = newWriter(ctx, b, &s.options)
	}
	if err != nil {
		return nil, b.explainStore(ctx, err)
	}
	if s.flushFailed {
		if err := w.emptyLog(ctx, s.options.LockWait); err != nil {
			w.discard()
			return nil, b.explain(ctx, err)
		}
		s.flushFailed = false
	}
	return w, nil
}

// carryOut does tasks, and those that come meanwhile, in one transaction. It
// returns all of them. On an error their outcome is unknown, unless isWaiting
// says that the transaction never began.
func (s *Store) carryOut(w *writer, tasks []*task) ([]*task, error) {
	x := &s.transaction
	err := w.conn.Raw(func(raw any) error {
		if err := s.enter(w, tasks[0]); err != nil {
			return err
		}
		began := time.Now()
		s.inside.Store(&began)
		defer s.inside.Store(nil)
		tasks = s.gather(tasks)
		if err := s.checkSideFiles(w.base, w.sideFiles); err != nil { // writing would damage the file
			x.forget()
			_ = w.exec(w.rollback)
			return err
		}
		if err := x.begin(w, raw, s.options.now()); err != nil {
			return err
		}
		for _, t := range tasks {
			if t.ctx.Err() != nil { // its caller has left
				t.err = wait.Ended(t.ctx)
				continue
			}
			t.do(x)
		}
		if s.options.between != nil {
			s.options.between()
		}
		return x.end()
	})
	if err == nil {
		err = s.checkMoved(w.base)
	}
	if err != nil {
		s.flushFailed = s.flushFailed || code(err) == codes.SQLITE_IOERR_FSYNC
		return tasks, w.base.explainStore(context.Background(), err)
	}
	s.announce(w.base.file, x.passed, x.acts)
	return tasks, nil
}

// gather adds the tasks that have come meanwhile, up to mostInTransaction.
func (s *Store) gather(tasks []*task) []*task {
	size := tasks[0].size
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for ; n < len(s.queue) && size < mostInTransaction; n++ {
		tasks = append(tasks, s.queue[n])
		size += s.queue[n].size
	}
	s.queue = slices.Delete(s.queue, 0, n)
	return tasks
}

// mostKnown limits the records that are kept for the next transaction.
const mostKnown = 1024

// begin resets x for a new transaction, which has the write lock. now must have
// been read after the lock was taken. Records in memory are still true if no
// other connection has written since: SQLite trusts its cached pages by the
// same rule.
func (x *transaction) begin(w *writer, raw any, now time.Time) error {
	at, err := w.version()
	if err != nil {
		x.forget()
		_ = w.exec(w.rollback)
		return err
	}
	if x.seen == nil || len(x.seen) > mostKnown { // do not keep the memory of one large batch
		x.seen = map[string]*entry{}
	}
	if cap(x.dirty) > mostKnown || cap(x.passed) > mostKnown { // their unused parts keep records alive
		x.dirty, x.passed, x.acts = nil, nil, nil
	}
	if x.writer != w || x.at != at {
		clear(x.seen)
	}
	*x = transaction{
		writer: w, now: tenure.Time(now), seen: x.seen, at: at,
		dirty: x.dirty[:0], passed: x.passed[:0], acts: x.acts[:0],
	}
	x.raw, _ = raw.(sqldriver.ExecerContext) // newWriter has checked that
	return nil
}

// forget drops the records in memory: after a failure they may be those of a
// transaction that was not committed.
func (x *transaction) forget() { x.seen = nil }

// end writes the changed records and commits. On an error it rolls back.
//
// Refused requests change nothing and cost no flush. A record that was
// confirmed unchanged does: it may stand in the log without having been
// flushed, if the process that wrote it was killed in between. So end touches a
// row, to make the commit flush the log.
func (x *transaction) end() error {
	err := x.err
	if err == nil {
		err = x.flush()
	}
	if err == nil && !x.wrote && x.again != nil {
		err = x.exec(x.touch, x.again.id)
	}
	if err == nil {
		unnoted := x.noteActs()
		err = x.exec(x.commit)
		if unnoted != nil && primary(err) == codes.SQLITE_ERROR {
			err = unnoted // SQLite has rolled back by itself, so that nothing was left to commit
		}
	}
	if err != nil {
		x.forget()
		_ = x.exec(x.rollback) // SQLite may have rolled back by itself
	}
	return err
}
