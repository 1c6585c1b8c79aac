package cas

import (
	"context"
	"errors"
	"sync"

	"github.com/croft-dev/croft/store"
)

// Sweep drops the records that have not been used for the retention. A record
// that changes meanwhile stays. Damaged records stay, too. Sweep reports them
// after it has dropped the others.
func (s *Store) Sweep(ctx context.Context) (dropped int, err error) {
	// One time for all, read before the first record. So no record is taken for
	// older than it is.
	now, err := s.Now(ctx)
	if err != nil {
		return 0, err
	}
	drops := dropping{reg: s.reg, slots: make(chan struct{}, s.drops)}
	var failed error
	scan := s.reg.Scan(ctx)
	if old, ok := s.reg.(OldScanner); ok {
		// No record can be dropped that was changed within the retention.
		scan = old.ScanOld(ctx, now.Add(-s.retention))
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

// dropping counts the drops of one sweep. It drops one record after the other,
// or several at a time. The first error ends it.
type dropping struct {
	reg   Register
	slots chan struct{} // a token for each drop in flight

	group sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	dropped int
	failed  error
}

// begin drops a record, perhaps in the background. It returns false if a drop
// has failed.
func (d *dropping) begin(ctx context.Context, held Entry) bool {
	if cap(d.slots) == 1 {
		return d.drop(ctx, held)
	}
	d.slots <- struct{}{}
	d.group.Go(func() {
		defer func() { <-d.slots }()
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

// wait waits for all drops, and returns how many there were.
func (d *dropping) wait() (int, error) {
	d.group.Wait()
	return d.dropped, d.failed
}

// Close ends a background sweep and closes the register. Further calls do
// nothing. Requests after Close are answered with an unknown outcome.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.closed.Store(true)
		s.sweeper.Close()
		s.failed = s.reg.Close()
	})
	return s.failed
}
