package postgres

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/croft-dev/croft/store"
)

// A step of housekeeping looks at so many records: a few for each grant that led to it, so that the table stays a fraction larger than what the
// retention keeps, at a cost in proportion to the work done.
const sweepStep = 4096

// longestSweep bounds a step in the background.
const longestSweep = 30 * time.Second

// sweeping is the store's housekeeping in the background: at most one step at a time, none after Close.
type sweeping struct {
	every int

	mu     sync.Mutex
	cancel context.CancelFunc // nil while none is under way
	closed bool
	done   sync.WaitGroup
}

// Sweep drops the records that have not mattered for a retention. A record that another transaction has locked stays for the next time.
func (s *Store) Sweep(ctx context.Context) (dropped int, err error) {
	place, end := "", false
	for !end {
		var n int
		if n, place, end, err = s.sweepFrom(ctx, &place); err != nil {
			return dropped, err
		}
		dropped += n
	}
	return dropped, nil
}

// sweepFrom does one step: from a place, or from where the last step without one ended.
func (s *Store) sweepFrom(ctx context.Context, place *string) (dropped int, next string, end bool, err error) {
	if err := s.usable(ctx); err != nil {
		return 0, "", false, err
	}
	err = s.run(ctx, func(ctx context.Context) error {
		return s.pool.QueryRow(ctx, s.sql.sweep, s.setAt(), s.waitMillis(), micro(s.retention), place, sweepStep).Scan(&dropped, &next, &end)
	})
	if err != nil {
		return 0, "", false, store.Unknown(explain(ctx, err))
	}
	return dropped, next, end, nil
}

// sweepByChance begins a step after one in so many grants: by chance and not by counting, so that processes which live for a single grant
// do their part as well.
func (s *Store) sweepByChance() {
	if s.sweeping.every < 0 || rand.IntN(s.sweeping.every) != 0 {
		return
	}
	w := &s.sweeping
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.cancel != nil {
		return
	}
	var ctx context.Context
	ctx, w.cancel = context.WithTimeout(context.Background(), longestSweep)
	w.done.Go(func() {
		_, _, _, _ = s.sweepFrom(ctx, nil) // what it leaves the next one finds
		w.mu.Lock()
		defer w.mu.Unlock()
		w.cancel()
		w.cancel = nil
	})
}

// close ends the step under way.
func (w *sweeping) close() {
	w.mu.Lock()
	w.closed = true
	if w.cancel != nil {
		w.cancel()
	}
	w.mu.Unlock()
	w.done.Wait()
}
