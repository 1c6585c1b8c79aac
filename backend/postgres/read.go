package postgres

import (
	"context"
	"errors"
	"iter"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/failures"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// page is how many rows one statement of a listing reads at most.
const page = 1000

// Get returns the record of a key with its history. Its error matches
// fence.ErrInvalid for a bad key and [store.ErrUnknown] otherwise.
func (s *Store) Get(ctx context.Context, key string) (tenure.Record, error) {
	if err := fence.CheckKey(key); err != nil {
		return tenure.Record{}, err
	}
	if err := s.usable(ctx); err != nil {
		return tenure.Record{}, err
	}
	var packed, past string
	err := s.run(ctx, func(ctx context.Context) error {
		return s.pool.QueryRow(ctx, s.sql.get, key).Scan(&packed, &past)
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return tenure.Record{}, nil
	case err != nil:
		return tenure.Record{}, store.Unknown(explainStore(ctx, err))
	}
	rec, err := unpack(key, split(packed), past)
	if err != nil {
		return tenure.Record{}, store.Unknown(err)
	}
	return rec, nil
}

// List yields the records whose key begins with prefix, without their history.
// It reads a page at a time. It may miss changes that happen meanwhile. A
// damaged row does not hide the others: the error comes last.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[tenure.Record, error] {
	return func(yield func(tenure.Record, error) bool) {
		if !utf8.ValidString(prefix) || strings.ContainsRune(prefix, 0) {
			return // no key begins so, and the server would refuse the text
		}
		var failed failures.List
		last, more := "", true
		for more {
			rows, err := s.page(ctx, prefix, last)
			if err != nil {
				yield(tenure.Record{}, store.Unknown(err))
				return
			}
			more = len(rows) == page
			for _, row := range rows {
				if !strings.HasPrefix(row.key, prefix) {
					more = false // keys are ordered: no later key has the prefix
					break
				}
				last = row.key
				rec, err := unpackLast(row.key, row.packed)
				if err != nil {
					failed.Add(err)
				} else if !yield(rec, nil) {
					return
				}
			}
		}
		if err := failed.Err(); err != nil {
			yield(tenure.Record{}, store.Unknown(err))
		}
	}
}

// listed is a row of a listing.
type listed struct{ key, packed string }

// page reads the next rows of a listing.
func (s *Store) page(ctx context.Context, prefix, last string) (part []listed, err error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	err = s.run(ctx, func(ctx context.Context) error {
		rows, err := s.pool.Query(ctx, s.sql.list, prefix, last, page)
		if err != nil {
			return err
		}
		part, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (l listed, err error) {
			err = row.Scan(&l.key, &l.packed)
			return l, err
		})
		return err
	})
	if err != nil {
		return nil, explainStore(ctx, err)
	}
	return part, nil
}

// Now returns the server's time.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	if err := s.usable(ctx); err != nil {
		return time.Time{}, err
	}
	if s.now != nil {
		return tenure.Time(s.now()), nil
	}
	var us int64
	err := s.run(ctx, func(ctx context.Context) error { return s.pool.QueryRow(ctx, s.sql.now).Scan(&us) })
	if err != nil {
		return time.Time{}, store.Unknown(explainStore(ctx, err))
	}
	return fromMicro(us), nil
}
