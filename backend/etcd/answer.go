package etcd

import (
	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// busyReads is how often a key must have changed between reads to be busy: see
// group.firstRead.
const busyReads = 3

// takeAnswer handles etcd's answer to a group. The group is finished, or has a
// newer view afterwards.
func (s *Store) takeAnswer(g *group, revision int64, resp *etcdserverpb.TxnResponse) {
	read := results(resp.Responses)
	switch {
	case g.step == writing && resp.Succeeded:
		s.wrote(g, revision)
		s.queueAnswered(g, revision, resp.Responses)
		if g.granted || g.awardTo != nil {
			s.sweepByChance()
		}
		g.finish()
		return
	case g.step == renewing && resp.Succeeded:
		s.renewedOn(g, g.now)
		g.finish()
		return
	case g.step == writing:
		s.freeReserved(g, true)
		g.noAward = g.noAward || g.awardTo != nil
	}
	v, err := s.parseView(g.lookup, read)
	if err != nil {
		s.undoJoin(g, false)
		g.fail(err)
		return
	}
	if g.step == writing && g.etcdLease != nil && !g.putsLiveKey && !g.sentJoint {
		// The etcd lease is lost if the record is unchanged, so that only the
		// live key can have failed the conditions. If the page was a condition,
		// too, the transaction has read the live key.
		if !g.expired && v.mod == g.view.mod || g.expired && len(read[len(read)-1]) == 0 {
			s.leaseLost(g.etcdLease)
		}
	}
	v.asOf = revision
	if g.step == renewing && v.leaseRead && g.view.stored.lease == v.stored.lease && g.page.id == v.stored.page {
		if v.leaseGone {
			s.leaseLost(g.etcdLease)
		} else {
			s.mu.Lock()
			g.page.adopt(v.pageMod, v.page)
			s.mu.Unlock()
		}
	}
	g.reads++
	g.busy = g.reads >= busyReads && v.mod > g.firstRead
	if g.firstRead == 0 {
		g.firstRead = revision
	}
	s.mu.Lock()
	s.addView(g.key, v)
	if e := s.cache.byKey[g.key]; e != nil {
		if newer := e.Value.(*cacheEntry).view; newer != v && newer == g.view {
			// It was cached before this read. So etcd was restored meanwhile.
			s.cache.forget(g.key)
			s.addView(g.key, v)
		} else {
			// The answer may have been overtaken: this store may have released
			// the key meanwhile.
			v = newer
		}
	}
	s.mu.Unlock()
	g.view, g.confirmed = v, true
	// After addView: now it is known whether the bid that was in the entry
	// before has been awarded.
	s.noteJoined(g, revision)
}
