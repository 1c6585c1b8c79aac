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

	"github.com/croft-dev/croft/tenure"
)

// mostInTransaction bounds what is carried out in one transaction, so that other processes get their turn. A single call may have more.
const mostInTransaction = 1000

// task is something to be done in a transaction, with others.
type task struct {
	ctx  context.Context
	size int
	do   func(*transaction)
	from time.Time // since when it waits
	err  error     // why it is not known to have been done; set before done is closed
	done chan struct{}
}

// do does something in a transaction and returns when it is on the disk, or when ctx ends. Transactions are made by one goroutine of the store's, with all that is asked for meanwhile: a
// caller can leave at any time, whatever the disk does.
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
	case <-t.done: // perhaps both at once
		return t.err
	default:
	}
	s.leave(t)
	if ctx.Err() != nil {
		return s.gaveUp(ctx)
	}
	return ErrClosed
}

// join puts a task into the queue and makes sure that somebody works there.
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
	default: // it has been told, and has not looked yet
	}
	return true
}

// leave takes a task out of the queue: while the disk hangs, those who have given up must not gather there.
func (s *Store) leave(t *task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.queue, t); i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
	}
}

// next is the task that has waited for longest; nil if there is none.
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

// work makes transactions until the store is closed.
func (s *Store) work() {
	defer func() {
		if s.writer != nil {
			s.writer.discard()
		}
	}()
	for {
		select {
		case <-s.asked:
		case <-s.closing: // whoever is still in the queue sees that, too
			return
		}
		for t := s.next(); t != nil; t = s.next() {
			s.lead(t)
		}
	}
}

// lead makes one transaction: of the task that has waited for longest, and those that have come since.
func (s *Store) lead(t *task) {
	if err := s.usable(t.ctx); err != nil {
		if t.ctx.Err() != nil { // it ended in the queue: say what it waited for
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
			w.discard() // whatever state it is in
		}
		s.writer = nil
	}
	for _, q := range tasks {
		q.finish(err)
	}
	if len(tasks) > 1 { // those who were answered get to ask for more before the next transaction begins, and share it
		runtime.Gosched()
	}
	clear(tasks)
	s.tasks = tasks
}

// gaveUp says that ctx has ended, and who or what kept the request from being carried out, if that is known.
func (s *Store) gaveUp(ctx context.Context) error {
	s.mu.Lock()
	b := s.base
	s.mu.Unlock()
	switch since := s.inside.Load(); {
	case b == nil:
	case b.held():
		return fmt.Errorf("%w; store %s: %w: %s", over(ctx), b.name(), ErrBusy, b.holder())
	case since != nil && time.Since(*since) > tooLong:
		return fmt.Errorf("%w; store %s: a transaction has been on its way to the disk for %s: the disk hangs, or others keep it busy; look at it and at the system's log",
			over(ctx), b.name(), time.Since(*since).Round(time.Millisecond))
	}
	return over(ctx)
}

// tooLong is after what time a transaction that has the lock is worth a word.
const tooLong = 100 * time.Millisecond

// isWaiting tells an error of somebody who never got in: the connection is as good as before.
func isWaiting(err error) bool {
	return errors.Is(err, ErrBusy) || errors.Is(err, ErrClosed) || errors.Is(err, errGaveUp)
}

func (t *task) finish(err error) {
	if t.err == nil {
		t.err = err
	}
	close(t.done)
}

// connected is a writer on the file that is at the path now.
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
	if lacksTable(err) { // they were removed
		if err := b.prepare(ctx); err != nil {
			return nil, err
		}
		w, err = newWriter(ctx, b, &s.options)
	}
	if err != nil {
		return nil, b.explain(ctx, err)
	}
	if s.doubtful {
		if err := w.emptyLog(ctx, s.options.LockWait); err != nil {
			w.discard()
			return nil, b.explain(ctx, err)
		}
		s.doubtful = false
	}
	return w, nil
}

// carryOut does tasks, and those that have come meanwhile, in one transaction. On an error nothing is known of any of them, except that after one of waiting nothing was begun.
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
		if err := s.apart(w.base, w.company); err != nil { // before anything is damaged
			x.forget()
			_ = w.exec(w.rollback)
			return err
		}
		if err := x.begin(w, raw, s.options.Now()); err != nil {
			return err
		}
		for _, t := range tasks {
			if t.ctx.Err() != nil { // nobody waits for it
				t.err = over(t.ctx)
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
		err = s.gone(w.base)
	}
	if err != nil {
		s.doubtful = s.doubtful || code(err) == codes.SQLITE_IOERR_FSYNC
		return tasks, w.base.explain(context.Background(), err)
	}
	s.announce(w.base.file, x.passed, x.acts)
	return tasks, nil
}

// gather adds the tasks that have come by now.
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

// mostKnown bounds the records that are kept for the next transaction.
const mostKnown = 1024

// begin makes a transaction anew; the time is read here, after the lock was had. What is known of keys is still true if no other connection has written since: SQLite trusts the pages
// that it has read before on the same terms.
func (x *transaction) begin(w *writer, raw any, now time.Time) error {
	at, err := w.version()
	if err != nil {
		x.forget()
		_ = w.exec(w.rollback)
		return err
	}
	if x.seen == nil || len(x.seen) > mostKnown { // what one large batch needed is no measure for the next
		x.seen = map[string]*entry{}
	}
	if cap(x.dirty) > mostKnown || cap(x.passed) > mostKnown { // what is behind their ends keeps records
		x.dirty, x.passed, x.acts = nil, nil, nil
	}
	if x.writer != w || x.at != at {
		clear(x.seen)
	}
	*x = transaction{
		writer: w, now: tenure.Time(now), seen: x.seen, at: at,
		dirty: x.dirty[:0], passed: x.passed[:0], acts: x.acts[:0],
	}
	x.raw, _ = raw.(sqldriver.ExecerContext) // the driver has it: newWriter looked
	return nil
}

// forget drops what is known of keys: it may be of a transaction that never was.
func (x *transaction) forget() { x.seen = nil }

// end writes and commits, or leaves everything as it was. What was refused is not written: it costs no flush. What was confirmed as it is does: a process that was killed before its own flush
// may have left it in the log.
func (x *transaction) end() error {
	err := x.err
	if err == nil {
		err = x.flush()
	}
	if err == nil && !x.wrote && x.again != nil {
		err = x.exec(x.touch, x.again.id)
	}
	if err == nil {
		unnoted := x.noteActs() // a failure counts if it ended the transaction
		if err = x.exec(x.commit); err != nil {
			err = errors.Join(unnoted, err)
		}
	}
	if err != nil {
		x.forget()
		_ = x.exec(x.rollback) // SQLite may have done so by itself
	}
	return err
}
