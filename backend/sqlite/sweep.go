package sqlite

import (
	"context"
	sqldriver "database/sql/driver"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/croft-dev/croft/store"
)

const (
	// sweepStep is how many records one step looks at. That is four for each
	// grant, by the default of SweepEvery, so the table stays only a fraction
	// larger than the retention demands.
	sweepStep = 4096
	// vacuumStep is how many free pages one transaction gives back to the file
	// system.
	vacuumStep = 512
	// cutWait is how long cutLog tries to find a moment without readers.
	cutWait = 100 * time.Millisecond
)

// Sweep deletes the records whose retention is over, and gives their space back
// to the file system.
func (s *Store) Sweep(ctx context.Context) (dropped int, err error) {
	for from, end := int64(0), false; !end; {
		var n int
		if n, from, end, err = s.sweepFrom(ctx, from); err != nil {
			return dropped, store.Unknown(err)
		}
		dropped += n
	}
	if err := s.vacuum(ctx, 0); err != nil {
		return dropped, store.Unknown(err)
	}
	return dropped, nil
}

// sweepFrom does one step, with the rows after from. next is the last row it
// has looked at, and end reports that there are no more. It takes the write
// lock only if there is something to delete.
func (s *Store) sweepFrom(ctx context.Context, from int64) (dropped int, next int64, end bool, err error) {
	old := func(now time.Time) int64 { return now.Add(-s.options.Retention).UnixMicro() }
	var seen, due int
	err = s.withDatabase(ctx, func(b *base) error {
		return b.db.QueryRowContext(ctx, sqlLook, from, sweepStep, old(s.options.now())).Scan(&next, &seen, &due)
	})
	if err != nil || due == 0 {
		return 0, next, seen < sweepStep, err
	}
	var gone int64
	err = s.do(ctx, sweepStep, func(x *transaction) { gone = x.run(sqlSweep, from, next, old(x.now)) })
	if err != nil {
		return 0, next, false, err
	}
	return int(gone), next, seen < sweepStep, err
}

// vacuum gives free pages back to the file system, until spare of them are
// left. It does nothing in the caller's own database, nor in a file without
// incremental vacuum: see beginWAL.
func (s *Store) vacuum(ctx context.Context, spare int) error {
	for {
		var free, mode int
		var own bool
		err := s.withDatabase(ctx, func(b *base) error {
			own = b.own
			if err := b.db.QueryRowContext(ctx, "PRAGMA auto_vacuum").Scan(&mode); err != nil {
				return err
			}
			return b.db.QueryRowContext(ctx, "PRAGMA freelist_count").Scan(&free)
		})
		if err != nil || !own || mode != 2 {
			return err
		}
		if free <= spare {
			break
		}
		step := fmt.Sprintf("PRAGMA incremental_vacuum(%d)", vacuumStep)
		if err := s.do(ctx, vacuumStep, func(x *transaction) { x.run(step) }); err != nil {
			return err
		}
	}
	return s.withDatabase(ctx, func(b *base) error { return b.cutLog(ctx, s.options.LockWait) })
}

// cutLog copies the log into the file: only then does the file become shorter.
// It gives up soon if readers still need the log. A later step does it then.
func (b *base) cutLog(ctx context.Context, lockWait time.Duration) error {
	conn, err := b.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, "PRAGMA busy_timeout = 0"); err != nil {
		return err
	}
	_, err = emptyLog(ctx, conn, cutWait)
	restore := fmt.Sprintf("PRAGMA busy_timeout = %d", lockWait.Milliseconds())
	if _, failed := conn.ExecContext(context.WithoutCancel(ctx), restore); failed != nil {
		_ = conn.Raw(func(any) error { return sqldriver.ErrBadConn }) // the next user must be able to wait
	}
	return err
}

// sweepSomewhere does one step at a random row of the table. So no process
// needs to remember how far the last step came.
func (s *Store) sweepSomewhere(ctx context.Context) error {
	var last int64
	var pages int
	err := s.withDatabase(ctx, func(b *base) error {
		if err := b.db.QueryRowContext(ctx, sqlLast).Scan(&last); err != nil {
			return err
		}
		return b.db.QueryRowContext(ctx, "PRAGMA page_count").Scan(&pages)
	})
	if err != nil {
		return err
	}
	from := max(rand.Int64N(last+1)-sweepStep/2, 0)
	dropped, _, _, err := s.sweepFrom(ctx, from)
	if err != nil || dropped == 0 {
		return err
	}
	return s.vacuum(ctx, max(pages/2, vacuumStep)) // new records will use the rest
}
