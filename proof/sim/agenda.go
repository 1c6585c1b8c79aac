package sim

import "time"

// entry is one event on the agenda. Events of the same time keep the order in
// which they were added.
type entry struct {
	at  time.Duration
	seq int
	do  func()
}

// agenda is a heap of entries, the next one first.
type agenda struct {
	entries []entry
	seq     int
}

func (g *agenda) before(i, j int) bool {
	a, b := &g.entries[i], &g.entries[j]
	return a.at < b.at || a.at == b.at && a.seq < b.seq
}

func (g *agenda) push(at time.Duration, do func()) {
	g.seq++
	g.entries = append(g.entries, entry{at, g.seq, do})
	for i := len(g.entries) - 1; i > 0; {
		up := (i - 1) / 2
		if !g.before(i, up) {
			return
		}
		g.entries[i], g.entries[up] = g.entries[up], g.entries[i]
		i = up
	}
}

func (g *agenda) pop() entry {
	first, last := g.entries[0], len(g.entries)-1
	g.entries[0] = g.entries[last]
	g.entries[last] = entry{}
	g.entries = g.entries[:last]
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < last; child++ {
			if g.before(child, least) {
				least = child
			}
		}
		if least == i {
			return first
		}
		g.entries[i], g.entries[least] = g.entries[least], g.entries[i]
		i = least
	}
}
