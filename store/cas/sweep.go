package cas

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/croft-dev/croft/store"
)

// sweeping is the store's sweep in the background: at most one at a time, none after Close.
type sweeping struct {
	every    int
	parallel int

	mu     sync.Mutex
	cancel context.CancelFunc // nil while none is under way
	closed bool
	done   sync.WaitGroup
}

// longestSweep bounds a sweep in the background; what it leaves the next one finds.
const longestSweep = time.Minute

// Sweep drops the records that have not mattered for a retention. A record that changes meanwhile stays. Damaged records stay, too,
// and are reported after the others have been dropped.
func (s *Store) Sweep(ctx context.Context) (dropped int, err error) {
	// One time for all, read before the first record: a record is never taken to be older than it is.
	now, err := s.Now(ctx)
	if err != nil {
		return 0, err
	}
	drops := dropping{reg: s.reg, places: make(chan struct{}, s.sweeping.parallel)}
	var failed error
	scan := s.reg.Scan(ctx)
	if old, ok := s.reg.(OldScanner); ok {
		scan = old.ScanOld(ctx, now.Add(-s.retention)) // a record matters for at least as long as its last change
	}
	for held, err := range scan {
		if err == nil {
			err = s.usable(ctx)
		}
		if err != nil {
			dropped, _ := drops.wait()
			return dropped, store.Unknown(err)
		}
		if err := check(held.Record); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		if held.Record.IsZero() || !held.Record.Droppable(now, s.retention) {
			continue
		}
		if !drops.begin(ctx, held) {
			break
		}
	}
	dropped, err = drops.wait()
	if failed = errors.Join(err, failed); failed != nil {
		return dropped, store.Unknown(failed)
	}
	return dropped, nil
}

// dropping is what one sweep drops: one after the other, or several at a time. The first error ends it.
type dropping struct {
	reg    Register
	places chan struct{}

	group   sync.WaitGroup
	mu      sync.Mutex
	dropped int
	failed  error
}

// begin drops a record, and reports whether to go on.
func (d *dropping) begin(ctx context.Context, held Entry) bool {
	if cap(d.places) == 1 {
		return d.drop(ctx, held)
	}
	d.places <- struct{}{}
	d.group.Go(func() {
		defer func() { <-d.places }()
		d.drop(ctx, held)
	})
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failed == nil
}

func (d *dropping) drop(ctx context.Context, held Entry) bool {
	err := d.reg.Drop(ctx, held.Record.Key, held.Version)
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case err == nil:
		d.dropped++
	case !errors.Is(err, ErrConflict) && d.failed == nil:
		d.failed = err
	}
	return d.failed == nil
}

// wait is how many were dropped in the end.
func (d *dropping) wait() (int, error) {
	d.group.Wait()
	return d.dropped, d.failed
}

// sweepByChance begins a sweep in the background after one in so many grants. Its error is nobody's: the next sweep meets it again, and so
// does whoever calls Sweep.
func (s *Store) sweepByChance() {
	if s.sweeping.every < 0 || rand.IntN(s.sweeping.every) != 0 {
		return
	}
	s.sweeping.mu.Lock()
	defer s.sweeping.mu.Unlock()
	if s.sweeping.closed || s.sweeping.cancel != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), longestSweep)
	s.sweeping.cancel = cancel
	s.sweeping.done.Go(func() {
		_, _ = s.Sweep(ctx)
		s.sweeping.mu.Lock()
		defer s.sweeping.mu.Unlock()
		s.sweeping.cancel()
		s.sweeping.cancel = nil
	})
}

// Close ends a sweep in the background and closes the register. Further calls do nothing; requests after it are answered as unknown.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.closed.Store(true)
		s.sweeping.mu.Lock()
		s.sweeping.closed = true
		if s.sweeping.cancel != nil {
			s.sweeping.cancel()
		}
		s.sweeping.mu.Unlock()
		s.sweeping.done.Wait()
		s.failed = s.reg.Close()
	})
	return s.failed
}
