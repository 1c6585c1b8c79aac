package sim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Sight is something that can happen in a run: a fault, a transition, a
// refusal.
type Sight struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
}

// Coverage counts sights.
type Coverage map[Sight]int

// Add adds the counts of another Coverage.
func (c Coverage) Add(other Coverage) {
	for s, n := range other {
		c[s] += n
	}
}

// Missing returns the expected sights that did not occur.
func (c Coverage) Missing(expected []Sight) []Sight {
	var missing []Sight
	for _, s := range expected {
		if c[s] == 0 {
			missing = append(missing, s)
		}
	}
	return missing
}

// sorted returns the sights in the order of kinds and names.
func (c Coverage) sorted() []Sight {
	return slices.SortedFunc(maps.Keys(c), func(a, b Sight) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
}

// String returns a table of the counts, with a paragraph for each kind.
func (c Coverage) String() string {
	out := &strings.Builder{}
	kind, column := "", 0
	for _, s := range c.sorted() {
		if s.Kind != kind || column == 4 {
			if kind != "" {
				out.WriteByte('\n')
			}
			name := s.Kind
			if s.Kind == kind {
				name = ""
			}
			fmt.Fprintf(out, "  %-12s", name)
			kind, column = s.Kind, 0
		}
		fmt.Fprintf(out, " %-24s%9d ", s.Name, c[s])
		column++
	}
	if kind != "" {
		out.WriteByte('\n')
	}
	return out.String()
}

func (w *world) cover(kind, name string) { w.coverage[Sight{kind, name}]++ }
