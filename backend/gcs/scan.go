package gcs

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/api/storage/v1"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/failures"
	"github.com/croft-dev/croft/internal/objects"
	"github.com/croft-dev/croft/internal/wait"
	"github.com/croft-dev/croft/store/cas"
	"github.com/croft-dev/croft/tenure"
)

const (
	pageSize = 1000 // names in one request: the most that the service gives
	atOnce   = 64   // requests in flight for one batch or listing; each takes some tens of milliseconds
)

// Scan reads every record. It takes one request for a thousand names, and one
// for each record that has changed since this register last read it.
func (r *register) Scan(ctx context.Context) iter.Seq2[cas.Entry, error] {
	return r.scan(ctx, func(*storage.Object) bool { return true }, false)
}

// ScanPrefix does the same for the records of keys that begin with prefix. It
// reads a record if its metadata has no key. It also reads it if its metadata
// has the key of another object: others may change metadata and leave the
// record as it is.
func (r *register) ScanPrefix(ctx context.Context, prefix string) iter.Seq2[cas.Entry, error] {
	return r.scan(ctx, func(o *storage.Object) bool {
		key, err := fence.UnescapeKey(o.Metadata[metaKey])
		return err != nil || r.layout.Record(key) != o.Name || strings.HasPrefix(key, prefix)
	}, false)
}

// ScanOld reads the records that have not been written since before. It also
// deletes tombstones that earlier sweeps have left, and objects of interrupted
// probes.
func (r *register) ScanOld(ctx context.Context, before time.Time) iter.Seq2[cas.Entry, error] {
	// A moment more, because an object may be dated a little later than its
	// record.
	records := r.scan(ctx, func(o *storage.Object) bool {
		return r.clock != nil || !timeOf(o.Updated).After(before.Add(2*time.Second))
	}, true)
	return func(yield func(cas.Entry, error) bool) {
		for held, err := range records {
			if !yield(held, err) {
				return
			}
		}
		if _, err := r.removeOld(ctx, r.layout.Prefix()+"probes/trial-", ""); err != nil {
			yield(cas.Entry{}, err)
		}
	}
}

// removeOld removes the leftovers of dead processes under a prefix: objects
// older than LeftoverAge whose names end in suffix.
func (b *bucket) removeOld(ctx context.Context, prefix, suffix string) (removed int, err error) {
	for page, err := range b.pages(ctx, prefix) {
		if err != nil {
			return removed, err
		}
		now, _, known := b.clock.Span()
		for _, o := range page {
			made := timeOf(o.TimeCreated)
			if !known || made.IsZero() || !strings.HasSuffix(o.Name, suffix) || now.Sub(made) < LeftoverAge {
				continue
			}
			switch err := b.remove(ctx, o.Name, o.Generation); {
			case err == nil:
				removed++
			case !errors.Is(err, errMismatch):
				return removed, err
			}
		}
	}
	return removed, nil
}

// scan yields the records of the wanted objects. It reports damaged ones last,
// so that they hide no others. If cleanUp is set, it also deletes tombstones.
func (r *register) scan(
	ctx context.Context, wanted func(*storage.Object) bool, cleanUp bool,
) iter.Seq2[cas.Entry, error] {
	return func(yield func(cas.Entry, error) bool) {
		var failed failures.List
		for page, err := range r.pages(ctx, r.layout.Records()) {
			if err != nil {
				yield(cas.Entry{}, err)
				return
			}
			page = slices.DeleteFunc(page, func(o *storage.Object) bool {
				return !r.layout.IsRecord(o.Name) || !wanted(o)
			})
			for i, one := range r.readAll(ctx, page) {
				switch generation, _ := generationOf(one.entry.Version); {
				case ctx.Err() != nil:
					yield(cas.Entry{}, wait.Ended(ctx))
					return
				case one.err != nil:
					failed.Add(one.err)
				case one.entry.Record.IsZero():
					if cleanUp && generation != 0 {
						r.deleteTombstone(ctx, page[i].Name, generation)
					}
				case !yield(one.entry, nil):
					return
				}
			}
		}
		if err := failed.Err(); err != nil {
			yield(cas.Entry{}, err)
		}
	}
}

type readOne struct {
	entry cas.Entry
	err   error
}

// readAll reads objects in parallel. An object that has gone meanwhile is an
// empty entry.
func (r *register) readAll(ctx context.Context, page []*storage.Object) []readOne {
	all := make([]readOne, len(page))
	var group sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for i, o := range page {
		if data := r.bodies.Known(o.Name, string(version(o.Generation))); data != nil {
			all[i].entry, all[i].err = r.entryOf(o.Name, content{data, o.Generation})
			continue
		}
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			c, err := r.get(ctx, o.Name)
			if err == nil {
				all[i].entry, err = r.entryOf(o.Name, c)
			}
			if all[i].err = err; err == nil && c.generation != 0 {
				r.bodies.Keep(o.Name, string(version(c.generation)), c.data)
			}
		})
	}
	group.Wait()
	return all
}

// pages lists the objects under a prefix.
func (b *bucket) pages(ctx context.Context, prefix string) iter.Seq2[[]*storage.Object, error] {
	return func(yield func([]*storage.Object, error) bool) {
		token := ""
		for try := 1; ; {
			page, next, err := b.page(ctx, prefix, token)
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

// Drop puts a tombstone in a record's place, on the same condition as any
// change. Then it deletes the tombstone if that is safe. A new owner of the key
// replaces the tombstone, on condition of its generation.
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
	tombstone, err := r.put(ctx, name, generation, data, key)
	if errors.Is(err, errMismatch) {
		return cas.ErrConflict
	}
	if err == nil {
		r.deleteTombstone(ctx, name, tombstone)
	}
	return err
}

// deleteTombstone deletes a tombstone, but only if this endpoint has been seen
// to honour the condition of a delete. Another client may be putting a record
// in its place at this moment. A tombstone that stays does no harm, and has a
// few bytes.
func (r *register) deleteTombstone(ctx context.Context, name string, generation int64) {
	if honoured, _ := r.deletesOnCondition(ctx, r.layout.Trial()); honoured {
		// One try: if it fails, the next sweep finds the tombstone.
		_ = r.delete(ctx, name, &condition{generation: generation})
	}
}
