package postgres

import (
	"context"

	"github.com/croft-dev/croft/store"
)

// A step of housekeeping looks at so many records: a few for each grant that led to it, so that the table stays a fraction larger than what the
// retention keeps, at a cost in proportion to the work done.
const sweepStep = 4096

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
