package cas

import (
	"context"
	"errors"
	"sync"

	"github.com/croft-dev/croft/store"
)

// Sweep drops the records that have not mattered for a retention. A record that changes meanwhile stays. Damaged records stay, too,
// and are reported after the others have been dropped.
func (s *Store) Sweep(ctx context.Context) (dropped int, err error) {
	// One time for all, read before the first record: a record is never taken to be older than it is.
	now, err := s.Now(ctx)
	if err != nil {
		return 0, err
	}
	drops := dropping{reg: s.reg, places: make(chan struct{}, s.sweepers)}
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

// Close ends a sweep in the background and closes the register. Further calls do nothing; requests after it are answered as unknown.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.closed.Store(true)
		s.sweeping.Close()
		s.failed = s.reg.Close()
	})
	return s.failed
}
