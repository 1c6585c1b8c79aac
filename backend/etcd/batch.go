package etcd

import (
	"cmp"
	"slices"

	"github.com/croft-dev/croft/tenure"
)

const (
	// maxGroups is how many keys one transaction carries out.
	maxGroups = 100
	// maxOps is how many operations a batch has, and how many conditions. etcd
	// takes 128 in a transaction. A transaction within another may have as many
	// as the outer one leaves over. A group has at most six, an offer within it
	// two, and the transaction within that one.
	maxOps = 128 - 6 - 2 - 1
	// maxBytes bounds the size of a transaction. etcd takes 1.5 MiB.
	maxBytes = 1 << 20
)

// batch is the groups that one transaction carries out.
type batch struct {
	groups    []*group
	bytes     int
	pages     []*ownPage
	newLeases []*etcdLease // whose live keys do not exist yet
}

// batches packs groups into batches. The renewals on one page go together.
func (s *Store) batches(groups []*group) []*batch {
	var out []*batch
	open := &batch{}
	add := func(bytes int, added ...*group) {
		n := len(open.groups) + len(added)
		// Two more: a page or a live key that comes with it, and a read of the
		// queues.
		full := n > maxGroups || n+len(open.pages)+len(open.newLeases)+2 > maxOps || open.bytes+bytes > maxBytes
		if len(open.groups) > 0 && full {
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
			add(bidWeight(&g.requests[0]), g) // a lookup may leave a bid
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

// weight returns an upper bound of the bytes of a group's write.
func (s *Store) weight(g *group) int {
	d := g.next
	record := 256 + len(d.rec.Owner) + len(d.rec.Instance) + len(d.rec.Actor) + len(d.rec.Note) +
		len(d.rec.Progress) + weigh(d.rec.History)
	for _, g := range d.rec.Guards {
		record += len(g) + 4
	}
	// Conditions, reads and the queue name the key, too.
	sum := 512 + 16*(len(s.names)+len(g.key)+2) + record
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
	if offers { // the transaction has it for the first and the second
		sum += 2 * (record + older)
	}
	return sum
}

// bidWeight returns an upper bound of the bytes of a bid.
func bidWeight(q *tenure.Request) int {
	sum := 256 + len(q.Key) + len(q.Owner) + len(q.Instance)
	for _, g := range q.Guards {
		sum += len(g) + 4
	}
	return sum
}

// weigh returns an upper bound of the bytes of a history. A text that equals
// that of the term before is not packed again.
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
