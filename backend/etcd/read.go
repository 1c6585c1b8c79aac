package etcd

import (
	"context"
	"errors"
	"iter"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/failures"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// Get returns the record of a key with its history. Its error matches
// fence.ErrInvalid for a bad key and [store.ErrUnknown] otherwise.
func (s *Store) Get(ctx context.Context, key string) (tenure.Record, error) {
	if err := fence.CheckKey(key); err != nil {
		return tenure.Record{}, err
	}
	if err := s.usable(ctx); err != nil {
		return tenure.Record{}, err
	}
	ctx = failFast(ctx)
	v := s.cached(key)
	for round := 0; ; round++ {
		if err := pause(ctx, round); err != nil {
			return tenure.Record{}, store.Unknown(err)
		}
		ops, expected := s.reads(key, v)
		resp, err := s.txn(ctx, nil, ops, nil)
		if err == nil {
			v, err = s.parse(key, expected, resp.Responses, resp.Header.Revision)
		}
		if err != nil {
			return tenure.Record{}, store.Unknown(err)
		}
		if v.stored == nil || !carried(&v.stored.rec) || v.pageRead {
			return copied(s.record(v, s.now())), nil
		}
	}
}

// listChunk is how many records one call reads. Other users may have written
// values of up to 1.5 MiB.
const listChunk = 100

// List yields the records whose key begins with prefix, without their history,
// as they were at one moment. Damaged records do not hide the others. Their
// error comes last.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[tenure.Record, error] {
	return func(yield func(tenure.Record, error) bool) {
		var failed failures.List
		for e, err := range s.scan(failFast(ctx), prefix) {
			switch {
			case errors.Is(err, ErrDamaged):
				failed.Add(err)
			case err != nil:
				yield(tenure.Record{}, store.Unknown(err))
				return
			case !yield(withoutHistory(s.record(&e.view, s.now())), nil):
				return
			}
		}
		if err := failed.Err(); err != nil {
			yield(tenure.Record{}, store.Unknown(err))
		}
	}
}

// scanned is one record of a scan.
type scanned struct {
	key  string
	view view
}

// scan reads all records with a prefix, and all pages, at one revision. If etcd
// is compacted meanwhile, the rest is read at a newer one.
func (s *Store) scan(ctx context.Context, prefix string) iter.Seq2[scanned, error] {
	return func(yield func(scanned, error) bool) {
		var pages map[string]*mvccpb.KeyValue
		from, end := s.names.record(prefix), clientv3.GetPrefixRangeEnd(s.names.record(prefix))
		revision := int64(0)
		for {
			if err := s.usable(ctx); err != nil {
				yield(scanned{}, err)
				return
			}
			resp, err := s.readPart(ctx, from, end, revision)
			if err == nil && pages == nil {
				revision = resp.Header.Revision
				pages, err = s.readPages(ctx, revision)
			}
			if errors.Is(err, rpctypes.ErrCompacted) {
				revision, pages = 0, nil
				continue
			}
			if err != nil {
				yield(scanned{}, err)
				return
			}
			for _, kv := range resp.Kvs {
				e := scanned{key: string(kv.Key)[len(s.names.records()):], view: view{asOf: revision}}
				d, err := decodeRecord(e.key, kv.Value)
				if err == nil {
					var found []*mvccpb.KeyValue
					if p := pages[s.names.page(d.page)]; p != nil {
						found = append(found, p)
					}
					err = s.fill(&e.view, e.key, kv, d.page, found)
				}
				if !yield(e, err) {
					return
				}
			}
			if !resp.More {
				return
			}
			from = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
		}
	}
}

// readPart reads one chunk of a range at a revision.
func (s *Store) readPart(ctx context.Context, from, end string, revision int64) (*clientv3.GetResponse, error) {
	return repeated(ctx, 2*s.timeout, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return s.client.Get(ctx, from,
			clientv3.WithRange(end), clientv3.WithLimit(listChunk), clientv3.WithRev(revision))
	})
}

// maxPageName is longer than the name of a page without its prefix.
const maxPageName = 64

// readPages reads all pages at a revision. They are in memory during a whole
// listing. So it drops long names and values, which other users must have put
// there.
func (s *Store) readPages(ctx context.Context, revision int64) (map[string]*mvccpb.KeyValue, error) {
	pages := map[string]*mvccpb.KeyValue{}
	from, end := s.names.pages(), clientv3.GetPrefixRangeEnd(s.names.pages())
	for {
		resp, err := s.readPart(ctx, from, end, revision)
		if err != nil {
			return nil, err
		}
		for _, kv := range resp.Kvs {
			if len(kv.Value) > maxPageBytes {
				kv.Value = nil // reported as damaged
			}
			if len(kv.Key) <= len(s.names.pages())+maxPageName {
				pages[string(kv.Key)] = kv
			}
		}
		if !resp.More {
			return pages, nil
		}
		from = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
	}
}

// retentionOf returns how long a record outlives its end as the view shows it.
// A page that is gone may have had a later renewal.
func (s *Store) retentionOf(v *view) time.Duration {
	if v.pageRead && v.page == nil {
		return s.retention + s.notedFor()
	}
	return s.retention
}

// Sweep drops the records that have not mattered for the retention. A record
// that changes meanwhile stays. Damaged records stay, too. They are reported
// after the others have been dropped. Sweep also forgets the lapsed leases of
// this store whose keys others have taken or dropped.
func (s *Store) Sweep(ctx context.Context) (dropped int, err error) {
	if err := s.usable(ctx); err != nil {
		return 0, err
	}
	// The time is read before the first record, so no record seems older than
	// it is.
	now := s.now()
	var failed failures.List
	var drops []clientv3.Op
	own := map[*member]bool{} // that records still name
	flush := func() error {
		if len(drops) == 0 {
			return nil
		}
		resp, err := s.txn(ctx, nil, drops, nil)
		drops = drops[:0]
		if err != nil {
			return err
		}
		for _, r := range resp.Responses {
			if r.GetResponseTxn().Succeeded {
				dropped++
			}
		}
		return nil
	}
	for e, err := range s.scan(ctx, "") {
		s.mu.Lock()
		own[s.memberOf(e.view.stored)] = true
		s.mu.Unlock()
		switch {
		case errors.Is(err, ErrDamaged):
			failed.Add(err)
			continue
		case err == nil && s.record(&e.view, now).Droppable(now, s.retentionOf(&e.view)):
			name := s.names.record(e.key)
			same := clientv3.Compare(clientv3.ModRevision(name), "=", e.view.mod)
			drops = append(drops, clientv3.OpTxn([]clientv3.Cmp{same}, []clientv3.Op{clientv3.OpDelete(name)}, nil))
		}
		if err == nil && len(drops) == maxGroups {
			err = flush()
		}
		if err != nil {
			return dropped, store.Unknown(err)
		}
	}
	if err = errors.Join(flush(), failed.Err()); err != nil {
		return dropped, store.Unknown(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, m := range s.held {
		if m.lapsed && !own[m] {
			s.removeMember(m)
			delete(s.views, key)
		}
	}
	return dropped, nil
}
