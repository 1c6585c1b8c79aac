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

// Get returns the record of a key with its history. Its error matches
// fence.ErrInvalid for a bad key and [store.ErrUnknown] otherwise.
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

// listChunk is how many records one call reads. Other users may have written
// values of up to 1.5 MiB.
const listChunk = 100

// List yields the records whose key begins with prefix, without their history,
// as they were at one moment. Damaged records do not hide the others. Their
// error comes last.
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

// scanned is one record of a scan.
type scanned struct {
	key  string
	view *view
}

// leaseKeys has all live keys and pages by name.
type leaseKeys map[string]*mvccpb.KeyValue

// scan reads all records with a prefix, and their live keys and pages, at one
// revision. If etcd is compacted meanwhile, the rest is read at a newer one.
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

// readPart reads one chunk of a range at a revision.
func (s *Store) readPart(
	ctx context.Context, from, end string, revision int64, options ...clientv3.OpOption,
) (*clientv3.GetResponse, error) {
	options = append(options, clientv3.WithRange(end), clientv3.WithLimit(listChunk), clientv3.WithRev(revision))
	return repeated(ctx, 2*s.timeout, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return s.client.Get(ctx, from, options...)
	})
}

// maxName is longer than the names of live keys and pages, without their
// prefix.
const maxName = 64

// readLeaseKeys reads all live keys and pages at a revision. They are in memory
// during a whole listing. So it drops long names and values, which other users
// must have put there.
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
					kv.Value = nil // reported as damaged
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

// viewOf makes a view of a record and the live keys and pages that were read
// with it.
func (s *Store) viewOf(kv *mvccpb.KeyValue, around leaseKeys) (scanned, error) {
	key := string(kv.Key)[len(s.names.records()):]
	d, err := decodeRecord(key, kv.Value)
	if err != nil {
		return scanned{key: key}, err
	}
	l := lookup{key: key, live: d.lease, page: d.page} // no shelf: listings have no history
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
