package gcs

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"cloud.google.com/go/storage"
	"google.golang.org/api/iterator"

	"github.com/croft-dev/croft/internal/objects"
	"github.com/croft-dev/croft/store/cas"
	"github.com/croft-dev/croft/tenure"
)

const (
	pageSize   = 1000 // names in one request: as many as the service gives
	readAtOnce = 16
)

// Scan reads every record: one request for a thousand names, and one for each record.
func (r *register) Scan(ctx context.Context) iter.Seq2[cas.Entry, error] {
	return r.scan(ctx, func(*storage.ObjectAttrs) bool { return true }, func(string, cas.Entry) {})
}

// ScanOld reads the records that have not been written since before, and deletes what earlier sweeps have left of dropped ones.
func (r *register) ScanOld(ctx context.Context, before time.Time) iter.Seq2[cas.Entry, error] {
	old := func(o *storage.ObjectAttrs) bool { return r.clock != nil || o.Updated.Before(before) }
	return r.scan(ctx, old, func(name string, e cas.Entry) {
		if generation, err := generationOf(e.Version); err == nil && generation != 0 && e.Record.IsZero() {
			r.bury(ctx, name, generation)
		}
	})
}

// scan yields the records of the objects that are wanted, and shows each of them to see first.
func (r *register) scan(ctx context.Context, wanted func(*storage.ObjectAttrs) bool, see func(name string, e cas.Entry)) iter.Seq2[cas.Entry, error] {
	return func(yield func(cas.Entry, error) bool) {
		for page, err := range r.pages(ctx, r.layout.Records()) {
			if err != nil {
				yield(cas.Entry{}, err)
				return
			}
			var names []string
			for _, o := range page {
				if r.layout.IsRecord(o.Name) && wanted(o) {
					names = append(names, o.Name)
				}
			}
			for i, one := range r.readAll(ctx, names) {
				see(names[i], one.entry)
				if one.err != nil && !errors.Is(one.err, cas.ErrDamaged) {
					yield(cas.Entry{}, one.err)
					return
				}
				if !yield(one.entry, one.err) {
					return
				}
			}
		}
	}
}

type readOne struct {
	entry cas.Entry
	err   error
}

// readAll reads objects side by side. One that has gone meanwhile is an empty entry.
func (r *register) readAll(ctx context.Context, names []string) []readOne {
	all := make([]readOne, len(names))
	var group sync.WaitGroup
	turn := make(chan struct{}, readAtOnce)
	for i, name := range names {
		turn <- struct{}{}
		group.Go(func() {
			defer func() { <-turn }()
			c, err := r.get(ctx, name)
			if err == nil {
				all[i].entry, err = entryOf(name, c)
			}
			all[i].err = err
		})
	}
	group.Wait()
	return all
}

// pages lists the objects under a prefix.
func (b *bucket) pages(ctx context.Context, prefix string) iter.Seq2[[]*storage.ObjectAttrs, error] {
	return func(yield func([]*storage.ObjectAttrs, error) bool) {
		query := &storage.Query{Prefix: prefix, Projection: storage.ProjectionNoACL}
		_ = query.SetAttrSelection([]string{"Name", "Generation", "Updated", "Created", "Size"}) // it fails for unknown names alone
		token := ""
		for try := 1; ; {
			var page []*storage.ObjectAttrs
			next, err := iterator.NewPager(b.handle.Objects(ctx, query), pageSize, token).NextPage(&page)
			switch v := judge(err); {
			case v == done:
				if !yield(page, nil) || next == "" {
					return
				}
				token, try = next, 1
			case v == missing:
				yield(nil, b.explain(ctx, rightList, err))
				return
			case b.again(ctx, v, try):
				try++
			default:
				yield(nil, b.explain(ctx, rightList, err))
				return
			}
		}
	}
}

// Drop puts a tombstone in a record's place, on the same condition as any change, and then deletes it where that is safe. Whoever claims the key replaces the
// tombstone, on condition of its generation.
func (r *register) Drop(ctx context.Context, key string, old cas.Version) error {
	r.memory.Forget(key)
	generation, err := generationOf(old)
	if err != nil {
		return err
	}
	var e cas.Entry
	if err := r.time(&e); err != nil {
		return err
	}
	data, _, err := objects.WriteDropped(key, tenure.Time(e.Now))
	if err != nil {
		return err
	}
	name := r.layout.Record(key)
	grave, err := r.put(ctx, name, generation, data)
	if errors.Is(err, errMismatch) {
		return cas.ErrConflict
	}
	if err == nil {
		r.bury(ctx, name, grave)
	}
	return err
}

// bury deletes a tombstone, if this endpoint has been seen to honour the condition of a delete: another may be putting a record in its place at this moment. What is not
// deleted is of no harm but its few bytes.
func (r *register) bury(ctx context.Context, name string, generation int64) {
	if honoured, _ := r.deletesOnCondition(ctx, r.layout.Trial()); honoured {
		_ = r.remove(ctx, name, generation)
	}
}
