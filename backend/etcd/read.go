package etcd

import (
	"context"
	"errors"
	"iter"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/failures"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// Get returns the record of a key with its history. Its error matches fence.ErrInvalid for a bad key and [store.ErrUnknown] otherwise.
func (s *Store) Get(ctx context.Context, key string) (tenure.Record, error) {
	if err := fence.CheckKey(key); err != nil {
		return tenure.Record{}, err
	}
	if err := s.usable(ctx); err != nil {
		return tenure.Record{}, err
	}
	v := s.cached(key)
	for round := 0; ; round++ {
		if err := pause(ctx, round); err != nil {
			return tenure.Record{}, store.Unknown(err)
		}
		l := s.lookupFor(key, v)
		resp, err := s.txn(ctx, nil, l.ops(s.names), nil)
		if err != nil {
			return tenure.Record{}, store.Unknown(err)
		}
		if v, err = s.parseView(l, results(resp.Responses)); err != nil {
			return tenure.Record{}, store.Unknown(err)
		}
		if v.stored == nil || v.stored.lease == 0 || v.leaseRead {
			return v.withHistory(s.record(v, s.now())), nil
		}
	}
}

// listed is how many records one call reads. Others may have written them, and
// etcd takes values of 1.5 MiB.
const listChunk = 100

// List yields the records whose key begins with prefix, without their history, all of them as they were at one moment. A damaged record does not hide the others: they are yielded first, the error last.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[tenure.Record, error] {
	return func(yield func(tenure.Record, error) bool) {
		var failed failures.List
		for e, err := range s.scan(ctx, prefix) {
			switch {
			case errors.Is(err, ErrDamaged):
				failed.Add(err)
			case err != nil:
				yield(tenure.Record{}, store.Unknown(err))
				return
			case !yield(withoutHistory(s.record(e.view, s.now())), nil):
				return
			}
		}
		if err := failed.Err(); err != nil {
			yield(tenure.Record{}, store.Unknown(err))
		}
	}
}

// entry is one record of a scan.
type scanned struct {
	key  string
	view *view
}

// surroundings are what records hang on: the live keys and pages, by name.
type leaseKeys map[string]*mvccpb.KeyValue

// scan reads all records with a prefix, and what they hang on, at one revision. If etcd is compacted meanwhile, the rest is read as it is then.
func (s *Store) scan(ctx context.Context, prefix string) iter.Seq2[scanned, error] {
	return func(yield func(scanned, error) bool) {
		var around leaseKeys
		from, end := s.names.record(prefix), clientv3.GetPrefixRangeEnd(s.names.record(prefix))
		revision := int64(0)
		for {
			if err := s.usable(ctx); err != nil {
				yield(scanned{}, err)
				return
			}
			resp, err := s.readPart(ctx, from, end, revision)
			if errors.Is(err, rpctypes.ErrCompacted) {
				revision, around = 0, nil
				continue
			}
			if err == nil && around == nil {
				revision = resp.Header.Revision
				around, err = s.readLeaseKeys(ctx, revision)
				if errors.Is(err, rpctypes.ErrCompacted) {
					revision, around = 0, nil
					continue
				}
			}
			if err != nil {
				yield(scanned{}, err)
				return
			}
			for _, kv := range resp.Kvs {
				e, err := s.viewOf(kv, around)
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

func (s *Store) readPart(ctx context.Context, from, end string, revision int64, options ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	options = append(options, clientv3.WithRange(end), clientv3.WithLimit(listChunk), clientv3.WithRev(revision))
	return repeated(ctx, 2*s.timeout, func(ctx context.Context) (*clientv3.GetResponse, error) { return s.client.Get(ctx, from, options...) })
}

// mostName is more bytes than the name of a live key or a page has after its
// prefix.
const maxName = 64

// surroundings reads all live keys and pages at a revision. All of them are kept
// while a listing goes on, so what others have planted among them must be short.
func (s *Store) readLeaseKeys(ctx context.Context, revision int64) (leaseKeys, error) {
	around := leaseKeys{}
	for _, prefix := range []string{s.names.lives(), s.names.pages()} {
		var options []clientv3.OpOption
		if prefix == s.names.lives() {
			options = append(options, clientv3.WithKeysOnly())
		}
		from, end := prefix, clientv3.GetPrefixRangeEnd(prefix)
		for {
			resp, err := s.readPart(ctx, from, end, revision, options...)
			if err != nil {
				return nil, err
			}
			for _, kv := range resp.Kvs {
				if len(kv.Value) > maxPageBytes {
					kv.Value = nil // damage, too
				}
				if len(kv.Key) <= len(prefix)+maxName {
					around[string(kv.Key)] = kv
				}
			}
			if !resp.More {
				break
			}
			from = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
		}
	}
	return around, nil
}

// entry makes a view of a record that was read with its surroundings.
func (s *Store) viewOf(kv *mvccpb.KeyValue, around leaseKeys) (scanned, error) {
	key := string(kv.Key)[len(s.names.records()):]
	d, err := decodeRecord(key, kv.Value)
	if err != nil {
		return scanned{key: key}, err
	}
	l := lookup{key: key, live: d.lease, page: d.page} // without the shelf: nobody asks for histories
	found := [][]*mvccpb.KeyValue{{kv}}
	add := func(name string) {
		var list []*mvccpb.KeyValue
		if kv := around[name]; kv != nil {
			list = append(list, kv)
		}
		found = append(found, list)
	}
	if l.live != 0 {
		add(s.names.live(l.live))
	}
	if l.page.store != 0 {
		add(s.names.page(l.page))
	}
	v, err := s.parseView(l, found)
	return scanned{key: key, view: v}, err
}
