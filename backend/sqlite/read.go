package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"iter"
	"strings"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/failures"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// page is how many records one statement of a listing reads.
const page = 500

// Get returns the record of a key with its history. Its error matches
// fence.ErrInvalid for a bad key and [store.ErrUnknown] otherwise. It waits for
// no writer.
func (s *Store) Get(ctx context.Context, key string) (tenure.Record, error) {
	if err := fence.CheckKey(key); err != nil {
		return tenure.Record{}, err
	}
	rec, err := s.read(ctx, key)
	if err != nil {
		return tenure.Record{}, store.Unknown(err)
	}
	return rec, nil
}

func (s *Store) read(ctx context.Context, key string) (rec tenure.Record, err error) {
	err = s.withDatabase(ctx, func(b *base) error {
		var id int64
		var packed []byte
		err := b.db.QueryRowContext(ctx, sqlLoad, key).Scan(&id, &packed)
		if errors.Is(err, sql.ErrNoRows) {
			rec = tenure.Record{}
			return nil
		}
		if err == nil {
			rec, err = unpackWhole(key, packed)
		}
		return err
	})
	return rec, err
}

// unpackWhole reads a packed record with its whole history.
func unpackWhole(key string, packed []byte) (tenure.Record, error) {
	k, err := unpack(key, packed)
	if err != nil {
		return tenure.Record{}, err
	}
	return k.record()
}

// withDatabase calls do with the open database. If the tables are missing, it
// makes them and calls do once more.
func (s *Store) withDatabase(ctx context.Context, do func(*base) error) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	b, err := s.database(ctx)
	if err != nil {
		return err
	}
	err = do(b)
	if lacksTable(err) {
		if err := b.prepare(ctx); err != nil {
			return err
		}
		err = do(b)
	}
	return b.explainStore(ctx, err)
}

// List yields the records whose key begins with prefix, without their history.
// It reads a page at a time, so it may or may not see changes made meanwhile. A
// damaged record does not hide the others: the error comes last.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[tenure.Record, error] {
	return func(yield func(tenure.Record, error) bool) {
		var failed failures.List
		for last, more := "", true; more; {
			records, end, damaged, err := s.page(ctx, prefix, last)
			for _, rec := range records {
				if !yield(rec, nil) {
					return
				}
			}
			failed.Add(damaged...)
			if err != nil {
				failed.Add(err)
			}
			last, more = end, end != "" && err == nil
		}
		if err := failed.Err(); err != nil {
			yield(tenure.Record{}, store.Unknown(err))
		}
	}
}

// page reads the next records of a listing. next is the key after which the
// listing goes on, or "" at its end. Keys are ordered by their bytes, as in the
// index.
func (s *Store) page(
	ctx context.Context, prefix, last string,
) (records []tenure.Record, next string, damaged []error, err error) {
	err = s.withDatabase(ctx, func(b *base) error {
		records, next, damaged = nil, "", nil
		rows, err := b.db.QueryContext(ctx, sqlList, prefix, last, page)
		if err != nil {
			return err
		}
		defer rows.Close()
		count := 0
		for rows.Next() {
			var key string
			var packed sql.RawBytes
			if err := rows.Scan(&key, &packed); err != nil {
				return err
			}
			if !strings.HasPrefix(key, prefix) {
				next = "" // keys are ordered: no later one has the prefix
				return nil
			}
			if count++; count == page {
				next = key
			}
			k, err := unpack(key, packed)
			if err != nil {
				damaged = append(damaged, err)
				continue
			}
			records = append(records, withoutHistory(k.head))
		}
		return rows.Err()
	})
	return records, next, damaged, err
}
