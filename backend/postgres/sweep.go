package postgres

import (
	"context"

	"github.com/croft-dev/croft/store"
)

// sweepStep is how many records one step of housekeeping looks at: a few for
// each grant that led to it. So the table stays little larger than the
// retention needs, and the cost is in proportion to the work done.
const sweepStep = 4096

// Sweep deletes the records that have not mattered for a retention. It leaves a
// record that another transaction has locked for the next time.
func (s *Store) Sweep(ctx context.Context) (dropped int, err error) {
	after, end := "", false
	for !end {
		var n int
		if n, after, end, err = s.sweepFrom(ctx, &after); err != nil {
			return dropped, err
		}
		dropped += n
	}
	return dropped, nil
}

// sweepFrom does one step, among the keys greater than after. If after is nil,
// it goes on where the last such step ended.
func (s *Store) sweepFrom(ctx context.Context, after *string) (dropped int, next string, end bool, err error) {
	if err := s.usable(ctx); err != nil {
		return 0, "", false, err
	}
	err = s.run(ctx, func(ctx context.Context) error {
		row := s.pool.QueryRow(ctx, s.sql.sweep, s.setAt(), s.waitMillis(), micro(s.retention), after, sweepStep)
		return row.Scan(&dropped, &next, &end)
	})
	if err != nil {
		return 0, "", false, store.Unknown(explain(ctx, err))
	}
	return dropped, next, end, nil
}
