package glance

import (
	"cmp"
	"slices"
	"testing"
)

func TestUrgentKeepsTheFirstOfMany(t *testing.T) {
	u := Urgent[int]{Most: 3, Order: cmp.Compare[int]}
	if len(u.First()) != 0 {
		t.Errorf("nothing was added, and it has %v", u.First())
	}
	for i := range 1000 {
		u.Add((i * 7919) % 1000) // every number below 1000, in disorder
	}
	if got := u.First(); u.Count != 1000 || !slices.Equal(got, []int{0, 1, 2}) {
		t.Errorf("it counts %d and keeps %v; want 1000 and the first three", u.Count, got)
	}
	if cap(u.kept) > 64 {
		t.Errorf("it has room for %d values", cap(u.kept))
	}
}
