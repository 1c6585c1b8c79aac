package etcd

import (
	"cmp"
	"slices"

	"github.com/croft-dev/croft/tenure"
)

const (
	// mostLanes is how many keys one transaction carries out.
	maxGroups = 100
	// mostOps is how many operations, and how many conditions, a transaction has: etcd takes 128, and in a transaction within it what that leaves of them. A lane has six at most, an offer in it two, and what is in that one.
	maxOps = 128 - 6 - 2 - 1
	// mostBytes bounds what one transaction carries: etcd takes 1.5 MiB.
	maxBytes = 1 << 20
)

// batch is what one transaction carries out.
type batch struct {
	groups    []*group
	bytes     int
	pages     []*ownPage
	newLeases []*etcdLease // whose live keys are not there yet
}

// batches packs lanes. The renewals on one page go together.
func (s *Store) batches(groups []*group) []*batch {
	var out []*batch
	open := &batch{}
	add := func(bytes int, added ...*group) {
		n := len(open.groups) + len(added)
		// Two more for a page or a live key that comes with it, and for a look at the queues.
		if len(open.groups) > 0 && (n > maxGroups || n+len(open.pages)+len(open.newLeases)+2 > maxOps || open.bytes+bytes > maxBytes) {
			out = append(out, open)
			open = &batch{}
		}
		open.groups, open.bytes = append(open.groups, added...), open.bytes+bytes
	}
	byPage := map[*ownPage][]*group{}
	for _, g := range groups {
		switch g.step {
		case writing:
			s.reserveSlot(g)
			add(s.weight(g), g)
			if g.putsLiveKey && !slices.Contains(open.newLeases, g.etcdLease) {
				open.newLeases = append(open.newLeases, g.etcdLease)
			}
		case renewing:
			byPage[g.page] = append(byPage[g.page], g)
		case looking:
			add(bidWeight(&g.requests[0]), g) // which it may leave
		}
	}
	for _, p := range sortedPages(byPage) {
		add(0, byPage[p]...)
		open.pages = append(open.pages, p)
	}
	if len(open.groups) > 0 {
		out = append(out, open)
	}
	return out
}

func sortedPages(byPage map[*ownPage][]*group) []*ownPage {
	pages := make([]*ownPage, 0, len(byPage))
	for p := range byPage {
		pages = append(pages, p)
	}
	slices.SortFunc(pages, func(a, b *ownPage) int { return cmp.Compare(a.id.number, b.id.number) })
	return pages
}

// weight is at least how many bytes a lane's write takes, whatever is in it.
func (s *Store) weight(g *group) int {
	d := g.next
	record := 256 + len(d.rec.Owner) + len(d.rec.Instance) + len(d.rec.Actor) + len(d.rec.Note) + len(d.rec.Progress) + weigh(d.rec.History)
	for _, g := range d.rec.Guards {
		record += len(g) + 4
	}
	sum := 512 + 16*(len(s.names)+len(g.key)+2) + record // it is named in conditions, reads and the queue
	shelves, offers := len(d.rec.History) > maxInRecord, g.awardTo != nil
	if d.rec.State == tenure.Free {
		s.mu.Lock()
		_, m := s.ownMember(g.old)
		offers = m != nil && m.next[0].id != 0
		if offers && m.next[1].bid != nil {
			sum += bidWeight(&m.next[1].bid.Request)
		}
		s.mu.Unlock()
	}
	if !shelves && !offers {
		return sum
	}
	older := weigh(d.older)
	if shelves {
		sum += record + older
	}
	if offers { // to the first, or else to the second
		sum += 2 * (record + older)
	}
	return sum
}

// bidWeight is at least how many bytes a bid takes.
func bidWeight(q *tenure.Request) int {
	sum := 256 + len(q.Key) + len(q.Owner) + len(q.Instance)
	for _, g := range q.Guards {
		sum += len(g) + 4
	}
	return sum
}

// weigh is at least how many bytes transfers take. What is as in the one before is not packed again.
func weigh(terms []tenure.Term) int {
	sum, last := 256, &tenure.Term{}
	for i := range terms {
		t := &terms[i]
		sum += 80
		if t.Owner != last.Owner {
			sum += len(t.Owner)
		}
		if t.Instance != last.Instance {
			sum += len(t.Instance)
		}
		if t.Actor != last.Actor {
			sum += len(t.Actor)
		}
		if t.Note != last.Note {
			sum += len(t.Note)
		}
		last = t
	}
	return sum
}
