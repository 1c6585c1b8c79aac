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
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// page is how many records one statement of a listing reads at most.
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
// It reads a page at a time. It may miss changes that happen meanwhile.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[tenure.Record, error] {
	return func(yield func(tenure.Record, error) bool) {
		if !utf8.ValidString(prefix) || strings.ContainsRune(prefix, 0) {
			return // no key begins so, and the server would refuse the text
		}
		last := ""
		for {
			records, err := s.page(ctx, prefix, last)
			for _, rec := range records {
				if !strings.HasPrefix(rec.Key, prefix) {
					return // keys are ordered: no later key has the prefix
				}
				if !yield(rec, nil) {
					return
				}
				last = rec.Key
			}
			if err != nil {
				yield(tenure.Record{}, store.Unknown(err))
				return
			}
			if len(records) < page {
				return
			}
		}
	}
}

// page reads the next records of a listing.
func (s *Store) page(ctx context.Context, prefix, last string) (records []tenure.Record, err error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	err = s.run(ctx, func(ctx context.Context) error {
		records = nil
		rows, err := s.pool.Query(ctx, s.sql.list, prefix, last, page)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var key, packed string
			if err := rows.Scan(&key, &packed); err != nil {
				return err
			}
			rec, err := unpack(key, split(packed), "")
			if err != nil {
				return err
			}
			records = append(records, rec)
		}
		return rows.Err()
	})
	if err != nil {
		return nil, explainStore(ctx, err)
	}
	return records, nil
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
