package etcd

import (
	"context"
	"errors"
	"iter"
	"time"

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
	resp, err := s.txn(ctx, nil, s.reads(key), nil)
	if err != nil {
		return tenure.Record{}, store.Unknown(err)
	}
	v, err := s.parse(key, resp.Responses, resp.Header.Revision)
	if err != nil {
		return tenure.Record{}, store.Unknown(err)
	}
	return copied(s.record(v, s.now())), nil
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
	key    string
	view   view
	damage error
}

// scan reads all records with a prefix, and their heartbeats, at one revision.
// If etcd is compacted meanwhile, the rest is read at a newer one.
func (s *Store) scan(ctx context.Context, prefix string) iter.Seq2[scanned, error] {
	return func(yield func(scanned, error) bool) {
		from, end := s.names.record(prefix), clientv3.GetPrefixRangeEnd(s.names.record(prefix))
		for revision := int64(0); ; {
			if err := s.usable(ctx); err != nil {
				yield(scanned{}, err)
				return
			}
			part, err := s.readPart(ctx, from, end, revision)
			if errors.Is(err, rpctypes.ErrCompacted) {
				revision = 0
				continue
			}
			if err != nil {
				yield(scanned{}, err)
				return
			}
			for _, e := range part {
				if revision = e.view.asOf; !yield(e, e.damage) {
					return
				}
			}
			if len(part) < listChunk {
				return
			}
			from = s.names.record(part[len(part)-1].key) + "\x00"
		}
	}
}

// readPart reads one chunk of records, and the heartbeats of those that are
// carried, at a revision. 0 is the newest. Damaged records have no heartbeat to
// read: others may have given them long names.
func (s *Store) readPart(ctx context.Context, from, end string, revision int64) ([]scanned, error) {
	resp, err := repeated(ctx, 2*s.timeout, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return s.client.Get(ctx, from,
			clientv3.WithRange(end), clientv3.WithLimit(listChunk), clientv3.WithRev(revision))
	})
	if err != nil {
		return nil, err
	}
	if revision == 0 {
		revision = resp.Header.Revision
	}
	part := make([]scanned, len(resp.Kvs))
	var carries []*scanned
	var reads []clientv3.Op
	for i, kv := range resp.Kvs {
		e := &part[i]
		e.key, e.view.asOf = string(kv.Key)[len(s.names.records()):], revision
		if e.damage = s.addRecord(&e.view, e.key, kv); e.damage == nil && carried(&e.view.stored.rec) {
			carries = append(carries, e)
			reads = append(reads, clientv3.OpGet(s.names.heartbeat(e.key), clientv3.WithRev(revision)))
		}
	}
	if len(carries) == 0 {
		return part, nil
	}
	beats, err := commit(ctx, s.client, 2*s.timeout, nil, reads, nil)
	if err != nil {
		return nil, err
	}
	for i, e := range carries {
		for _, kv := range beats.Responses[i].GetResponseRange().Kvs {
			e.damage = s.addHeartbeat(&e.view, e.key, kv)
		}
	}
	return part, nil
}

// retentionOf returns how long a record outlives its end as the view shows it.
// A heartbeat that is gone may have had a later renewal.
func (s *Store) retentionOf(v *view) time.Duration {
	if carried(&v.stored.rec) && v.beatMod == 0 {
		return s.retention + s.notedFor()
	}
	return s.retention
}

// Sweep drops the records that have not mattered for the retention. A record
// that changes meanwhile stays. Damaged records stay, too. They are reported
// after the others have been dropped.
func (s *Store) Sweep(ctx context.Context) (dropped int, err error) {
	if err := s.usable(ctx); err != nil {
		return 0, err
	}
	// The time is read before the first record, so no record seems older than
	// it is.
	now := s.now()
	var failed failures.List
	var drops []clientv3.Op
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
		switch {
		case errors.Is(err, ErrDamaged):
			failed.Add(err)
			continue
		case err == nil && s.record(&e.view, now).Droppable(now, s.retentionOf(&e.view)):
			record, beat := s.names.record(e.key), s.names.heartbeat(e.key)
			same := clientv3.Compare(clientv3.ModRevision(record), "=", e.view.mod)
			drops = append(drops, clientv3.OpTxn(
				[]clientv3.Cmp{same}, []clientv3.Op{clientv3.OpDelete(record), clientv3.OpDelete(beat)}, nil))
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
	return dropped, nil
}
