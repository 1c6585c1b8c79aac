package etcd

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/failures"
	"github.com/croft-dev/croft/store"
)

// sweeping is the state of the background sweep. At most one runs at a time,
// and none after Close.
type sweeping struct {
	every int
	mu    sync.Mutex
	busy  bool
}

// longestSweep bounds a background sweep. The next one continues.
const longestSweep = time.Minute

// deletion is an etcd key to delete if it has not changed.
type deletion struct {
	name  string
	mod   int64  // 0 if the record does not exist, but its shelf does
	shelf string // only of records
}

// Sweep drops the records that have not mattered for the retention. It also
// drops pages that no record names any more, and shelves whose records were
// deleted by hand. A record that changes meanwhile stays. Damaged records stay,
// too. They are reported after the others have been dropped.
func (s *Store) Sweep(ctx context.Context) (dropped int, err error) {
	if err := s.usable(ctx); err != nil {
		return 0, err
	}
	// The time is read before the first record, so no record seems older than
	// it is.
	now := s.now()
	var failed failures.List
	var old []deletion
	mine, shelved := map[slotID]bool{}, map[string]bool{}
	flush := func() error {
		n, err := s.deleteAll(ctx, old)
		dropped, old = dropped+n, old[:0]
		return err
	}
	for e, err := range s.scan(ctx, "") {
		switch {
		case errors.Is(err, ErrDamaged):
			failed.Add(err)
			if len(e.key) <= fence.MaxKey {
				shelved[e.key] = true // it may have one
			}
			continue
		case err != nil:
			return dropped, store.Unknown(err)
		}
		if e.view.stored.shelved != 0 {
			shelved[e.key] = true
		}
		if d := e.view.stored; d.page.store == s.id {
			mine[slotID{d.page, d.slot}] = true
		}
		if s.record(e.view, now).Droppable(now, s.retention) {
			old = append(old, deletion{s.names.record(e.key), e.view.mod, s.names.shelf(e.key)})
		}
		if len(old) == maxGroups {
			if err := flush(); err != nil {
				return dropped, store.Unknown(err)
			}
		}
	}
	s.dropLapsed(mine)
	if err = flush(); err == nil {
		old, err = s.unusedPages(ctx, now)
	}
	if err == nil {
		old, err = s.orphanShelves(ctx, shelved, old)
	}
	for part := range slices.Chunk(old, maxGroups) {
		if err == nil {
			_, err = s.deleteAll(ctx, part)
		}
	}
	if err = errors.Join(err, failed.Err()); err != nil {
		return dropped, store.Unknown(err)
	}
	return dropped, nil
}

// slotID is a slot of a page.
type slotID struct {
	page pageID
	slot int
}

// dropLapsed takes lapsed leases off the own pages, if their records are not
// there any more. Others have taken or dropped those keys. mine has the slots
// that records still name.
func (s *Store) dropLapsed(mine map[slotID]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.pages {
		for slot, m := range p.members {
			if m.lapsed && !mine[slotID{p.id, slot}] {
				s.cache.forget(m.key)
				s.leaveSlot(p, slot)
			}
		}
	}
}

// deleteAll deletes etcd keys that have not changed, and counts the records
// among them.
func (s *Store) deleteAll(ctx context.Context, old []deletion) (records int, err error) {
	if len(old) == 0 {
		return 0, nil
	}
	ops := make([]clientv3.Op, len(old))
	for i, d := range old {
		same := clientv3.Compare(clientv3.ModRevision(d.name), "=", d.mod)
		deletes := []clientv3.Op{clientv3.OpDelete(d.name)}
		if d.shelf != "" {
			deletes = append(deletes, clientv3.OpDelete(d.shelf))
		}
		ops[i] = clientv3.OpTxn([]clientv3.Cmp{same}, deletes, nil)
	}
	resp, err := s.txn(ctx, nil, ops, nil)
	if err != nil {
		return 0, err
	}
	for i, d := range old {
		if d.shelf != "" && d.mod != 0 && resp.Responses[i].GetResponseTxn().Succeeded {
			records++
		}
	}
	return records, nil
}

// unusedPages finds pages that no record names. Their store may be about to use
// them, unless their etcd lease is gone or they are old. A damaged record may
// name any page. While there is one, only pages go whose etcd lease is gone:
// all their leases are over.
func (s *Store) unusedPages(ctx context.Context, now time.Time) ([]deletion, error) {
	first, err := s.readPart(ctx, s.names.pages(), clientv3.GetPrefixRangeEnd(s.names.pages()), 0)
	if err != nil || len(first.Kvs) == 0 {
		return nil, err
	}
	around, err := s.readLeaseKeys(ctx, 0)
	if err != nil {
		return nil, err
	}
	used, damage := map[string]bool{}, false
	for e, err := range s.scan(ctx, "") { // after the pages, to find new records on them
		if errors.Is(err, ErrDamaged) {
			damage = true
			continue
		}
		if err != nil {
			return nil, err
		}
		if e.view.stored.page.store != 0 {
			used[s.names.page(e.view.stored.page)] = true
		}
	}
	var loose []deletion
	for name, kv := range around {
		if len(name) < len(s.names.pages()) || name[:len(s.names.pages())] != s.names.pages() || used[name] {
			continue
		}
		p, err := decodePage(name, kv.Value)
		dead := err == nil && around[s.names.live(p.lease)] == nil
		if dead || !damage && (err != nil || now.Sub(p.written) > s.retention) {
			loose = append(loose, deletion{name: name, mod: kv.ModRevision})
		}
	}
	return loose, nil
}

// orphanShelves adds the shelves of keys that have no record. They are deleted
// only if there is still no record then.
func (s *Store) orphanShelves(ctx context.Context, shelved map[string]bool, loose []deletion) ([]deletion, error) {
	from, end := s.names.shelves(), clientv3.GetPrefixRangeEnd(s.names.shelves())
	for {
		resp, err := s.readPart(ctx, from, end, 0, clientv3.WithKeysOnly())
		if err != nil {
			return nil, err
		}
		for _, kv := range resp.Kvs {
			from = string(kv.Key)
			if key := from[len(s.names.shelves()):]; !shelved[key] && len(key) <= fence.MaxKey {
				loose = append(loose, deletion{name: s.names.record(key), shelf: from})
			}
		}
		if !resp.More {
			return loose, nil
		}
		from += "\x00"
	}
}

// sweepByChance begins a background sweep after one in SweepEvery grants.
// Chance decides, not a counter, so that short-lived processes sweep, too.
// Errors are ignored: the next sweep meets them again.
func (s *Store) sweepByChance() {
	if s.sweeping.every < 0 || rand.IntN(s.sweeping.every) != 0 {
		return
	}
	s.sweeping.mu.Lock()
	defer s.sweeping.mu.Unlock()
	if s.sweeping.busy {
		return
	}
	s.sweeping.busy = true
	s.background(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, longestSweep)
		defer cancel()
		_, _ = s.Sweep(ctx)
		s.sweeping.mu.Lock()
		defer s.sweeping.mu.Unlock()
		s.sweeping.busy = false
	})
}
