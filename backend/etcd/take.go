package etcd

import (
	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// restless is how many reads a key must have changed under for its newest record to be taken as it is.
const restless = 3

// take takes in what etcd answered to a lane.
func (s *Store) take(l *lane, revision int64, resp *etcdserverpb.TxnResponse) {
	read := results(resp.Responses)
	switch {
	case l.step == writing && resp.Succeeded:
		s.wrote(l, revision)
		s.handedOver(l, revision, resp.Responses)
		if l.granted || l.heir != nil {
			s.sweepByChance()
		}
		l.finish()
		return
	case l.step == renewing && resp.Succeeded:
		s.renewedOn(l, l.now)
		l.finish()
		return
	case l.step == writing:
		s.unsettle(l, true)
		l.forgoes = l.forgoes || l.heir != nil
	}
	v, err := s.seen(l.look, read)
	if err != nil {
		s.unjoin(l, false)
		l.fail(err)
		return
	}
	if l.step == writing && l.anchor != nil && !l.plants && !l.wary {
		// The record is as it was, so what the write hangs on is not; or that was read, because there is more that it might be.
		if !l.expired && v.mod == l.view.mod || l.expired && len(read[len(read)-1]) == 0 {
			s.lost(l.anchor)
		}
	}
	v.asOf = revision
	if l.step == renewing && v.read && l.view.deed.lease == v.deed.lease && l.page.id == v.deed.page {
		if v.gone {
			s.lost(l.anchor)
		} else {
			s.mu.Lock()
			l.page.learn(v.pageMod, v.page)
			s.mu.Unlock()
		}
	}
	l.reads++
	l.fresh = l.reads >= restless && v.mod > l.since
	if l.since == 0 {
		l.since = revision
	}
	s.mu.Lock()
	s.remember(l.key, v)
	if e := s.views.byKey[l.key]; e != nil {
		if newer := e.Value.(*remembered).view; newer != v && newer == l.view { // it was known before this was asked: etcd was set back since
			s.views.forget(l.key)
			s.remember(l.key, v)
		} else { // what was long on its way may have been overtaken: the key given back, by this very store
			v = newer
		}
	}
	s.mu.Unlock()
	l.view, l.sure = v, true
	s.joined(l, revision) // after that: a bid that was there before is known to be granted, or was not
}
