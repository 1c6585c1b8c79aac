package etcd

import (
	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// restless is how many reads a key must have changed under for its newest record to be taken as it is.
const busyReads = 3

// take takes in what etcd answered to a lane.
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
		// The record is as it was, so what the write hangs on is not; or that was read, because there is more that it might be.
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
		if newer := e.Value.(*cacheEntry).view; newer != v && newer == g.view { // it was known before this was asked: etcd was set back since
			s.cache.forget(g.key)
			s.addView(g.key, v)
		} else { // what was long on its way may have been overtaken: the key given back, by this very store
			v = newer
		}
	}
	s.mu.Unlock()
	g.view, g.confirmed = v, true
	s.noteJoined(g, revision) // after that: a bid that was there before is known to be granted, or was not
}
