package cas

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/failures"
	"github.com/croft-dev/croft/internal/wait"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// Get returns the record of a key with its history. Its error matches
// fence.ErrInvalid for a bad key, and [store.ErrUnknown] otherwise.
func (s *Store) Get(ctx context.Context, key string) (tenure.Record, error) {
	if err := fence.CheckKey(key); err != nil {
		return tenure.Record{}, err
	}
	if err := s.usable(ctx); err != nil {
		return tenure.Record{}, err
	}
	held, err := s.load(ctx, key)
	if err != nil {
		return tenure.Record{}, store.Unknown(err)
	}
	return held.Record, nil
}

// List yields the records whose key begins with prefix, without their history.
// A damaged record does not hide the others: List yields them first, and the
// error last.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[tenure.Record, error] {
	return func(yield func(tenure.Record, error) bool) {
		records, err := s.collect(ctx, prefix)
		for _, rec := range records {
			if err := s.usable(ctx); err != nil {
				yield(tenure.Record{}, err)
				return
			}
			if !yield(rec, nil) {
				return
			}
		}
		if err != nil {
			yield(tenure.Record{}, store.Unknown(err))
		}
	}
}

// collect reads the records that List yields, in order. Its error is about all
// that it could not read.
func (s *Store) collect(ctx context.Context, prefix string) (records []tenure.Record, err error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	scan := s.reg.Scan(ctx)
	if p, ok := s.reg.(PrefixScanner); ok && prefix != "" {
		scan = p.ScanPrefix(ctx, prefix)
	}
	var failed failures.List
	for held, err := range scan {
		if err == nil && !strings.HasPrefix(held.Record.Key, prefix) {
			continue
		}
		if err == nil {
			err = check(held.Record)
		}
		switch {
		case err != nil:
			failed.Add(err)
		case !held.Record.IsZero():
			held.Record.History = nil // ten thousand would take much memory
			records = append(records, copyRecord(held.Record))
		}
	}
	// A scan may meet a key twice if the key changes meanwhile. The newer
	// record counts.
	slices.SortFunc(records, func(a, b tenure.Record) int {
		return cmp.Or(strings.Compare(a.Key, b.Key), cmp.Compare(b.Token, a.Token), b.Renewed.Compare(a.Renewed))
	})
	records = slices.CompactFunc(records, func(a, b tenure.Record) bool { return a.Key == b.Key })
	return records, failed.Err()
}

// Now returns the time of the register's clock.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	if err := s.usable(ctx); err != nil {
		return time.Time{}, err
	}
	now, err := s.reg.Now(ctx)
	if err != nil {
		return time.Time{}, store.Unknown(err)
	}
	return tenure.Time(now), nil
}

// Watch wakes waiters if the register can. Otherwise its error matches
// errors.ErrUnsupported.
func (s *Store) Watch(ctx context.Context, key string) (<-chan struct{}, error) {
	if err := fence.CheckKey(key); err != nil {
		return nil, err
	}
	w, ok := s.reg.(store.Watcher)
	if !ok {
		return nil, fmt.Errorf("this store cannot wake waiters, ask again instead: %w", errors.ErrUnsupported)
	}
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	return w.Watch(ctx, key)
}

// Acts announces operators' acts if the register can. Otherwise its error
// matches errors.ErrUnsupported.
func (s *Store) Acts(ctx context.Context) (<-chan string, error) {
	r, can := s.reg.(Announcer)
	if !can {
		return nil, fmt.Errorf("this store cannot tell of operators' acts, renew instead: %w", errors.ErrUnsupported)
	}
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	return r.Acts(ctx)
}

// Examine returns the register's findings about itself. If the register has
// none to give, the error matches errors.ErrUnsupported.
func (s *Store) Examine(ctx context.Context) ([]store.Finding, error) {
	e, ok := s.reg.(store.Examiner)
	if !ok {
		return nil, fmt.Errorf("this store cannot examine itself: %w", errors.ErrUnsupported)
	}
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	return e.Examine(ctx)
}

// usable returns an error if the store is closed or ctx has ended.
func (s *Store) usable(ctx context.Context) error {
	if ctx.Err() != nil {
		return store.Unknown(wait.Ended(ctx))
	}
	if s.closed.Load() {
		return store.Unknown(ErrClosed)
	}
	return nil
}
