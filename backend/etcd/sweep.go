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

// sweeping is the store's sweep in the background: at most one at a time, none after Close.
type sweeping struct {
	every int
	mu    sync.Mutex
	busy  bool
}

// longestSweep bounds a sweep in the background; what it leaves the next one finds.
const longestSweep = time.Minute

// doomed is a key to be deleted if it has not changed.
type deletion struct {
	name  string
	mod   int64  // 0 if it is not there, but its shelf is
	shelf string // of a record
}

// Sweep drops the records that have not mattered for a retention, pages that no record hangs on any more, and shelves whose records were deleted by hand. A record that changes meanwhile stays. Damaged records stay, too, and are reported after the
// others have been dropped.
func (s *Store) Sweep(ctx context.Context) (dropped int, err error) {
	if err := s.usable(ctx); err != nil {
		return 0, err
	}
	// One time for all, read before the first record: a record is never taken to be older than it is.
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
				shelved[e.key] = true // for all that is known
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

// seated is a place on a page.
type slotID struct {
	page pageID
	slot int
}

// vacate takes leases off the pages of this store that have lapsed, and whose records others have since taken or dropped.
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

// deleteAll deletes keys that have not changed, and counts the records among them.
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

// loosePages finds pages that no record hangs on. Their store may still be about
// to use them, unless their anchor is gone or they are old. A damaged record may
// hang on any page: while there is one, only pages go whose anchor is gone. All
// leases on those are over.
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
	for e, err := range s.scan(ctx, "") { // after the pages: a record that hangs on one is found
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

// looseShelves adds the shelves that no record was found to have. They are deleted if it is not there then, either: one that is dropped takes its shelf along.
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

// sweepByChance begins a sweep in the background after one in so many grants: a matter of chance and not of counting, so that processes which live for a single grant sweep as well. Its error is
// nobody's: the next sweep meets it again.
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
