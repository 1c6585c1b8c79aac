package server

import "sync"

// shares bounds how much of the server one client takes up, so that it leaves
// room for others. Clients are told apart by name: without Access there is one.
type shares struct {
	most  int // for one client; 0 means no bound
	mu    sync.Mutex
	taken map[string]int // guarded by mu
}

// take takes n for a client, until give is called. It reports false if that
// is more than the client's share.
func (s *shares) take(name string, n int) (give func(), ok bool) {
	if s.most == 0 {
		return func() {}, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken[name]+n > s.most {
		return nil, false
	}
	if s.taken == nil {
		s.taken = map[string]int{}
	}
	s.taken[name] += n
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.taken[name] -= n; s.taken[name] == 0 {
			delete(s.taken, name)
		}
	}, true
}

// share sets the bounds for one client.
func (s *Server) share() {
	if s.o.Access == nil {
		return
	}
	s.callShares.most, s.streamShares.most = max(s.o.MaxCalls/2, 1), max(s.o.MaxStreams/2, 1)
	s.batchShares.most, s.listShares.most = maxWaiting/4, maxLists/2
	s.longShares.most, s.hugeShares.most = maxLong/2, maxHuge/2
	s.transferShares.most, s.uploads.most = maxTransfers/2, maxUploads/2
}

// enterStream takes a slot of streams for a client, until leave is called.
func (s *Server) enterStream(id Identity) (leave func(), ok bool) {
	return s.streamShares.enter(s.streams, id)
}

// enterList takes a slot of listings for a client, until leave is called.
func (s *Server) enterList(id Identity) (leave func(), ok bool) {
	return s.listShares.enter(s.lists, id)
}

// enter takes a slot for a client, if its share allows it.
func (s *shares) enter(all slots, id Identity) (leave func(), ok bool) {
	give, ok := s.take(id.Name, 1)
	if !ok {
		return nil, false
	}
	if !all.enter() {
		give()
		return nil, false
	}
	return func() { all.leave(); give() }, true
}
