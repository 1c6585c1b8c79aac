package glance

import "slices"

// Urgent counts values, and keeps the few that come first in its order. So a
// command can look at any number of keys and show the most urgent of them.
type Urgent[T any] struct {
	// Most is how many values are kept.
	Most int
	// Order compares two values: the more urgent one comes first.
	Order func(x, y T) int
	Count int

	kept []T
}

// Add counts a value.
func (u *Urgent[T]) Add(v T) {
	u.Count++
	u.kept = append(u.kept, v)
	if len(u.kept) > 2*u.Most+8 { // sort rarely
		u.cut()
	}
}

// First returns the most urgent values.
func (u *Urgent[T]) First() []T {
	u.cut()
	return u.kept
}

func (u *Urgent[T]) cut() {
	slices.SortStableFunc(u.kept, u.Order)
	u.kept = slices.Clip(u.kept[:min(len(u.kept), u.Most)])
}
