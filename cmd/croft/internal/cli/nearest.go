package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/croft-dev/croft/store"
)

// mostCompared bounds how many keys Unknown looks at.
const mostCompared = 10_000

// Unknown returns the error for a key of which the store knows nothing, in a
// command that acts on known keys. It offers the nearest names. flag is the
// flag that insists.
func Unknown(ctx context.Context, st store.Store, key, flag string) error {
	var near []string
	n, most := 0, max(2, len(key)/6)
	for rec, err := range ListRecords(ctx, st, "") {
		if n++; err != nil || n > mostCompared {
			break
		}
		longer := len(rec.Key) - len(key) // so many bytes differ at least
		if max(longer, -longer) <= most && distance(key, rec.Key) <= most {
			near = append(near, rec.Key)
		}
	}
	slices.SortStableFunc(near, func(a, b string) int { return distance(key, a) - distance(key, b) })
	hint := ""
	if near = near[:min(len(near), 3)]; len(near) > 0 {
		for i := range near {
			near[i] = Word(near[i])
		}
		hint = "did you mean " + strings.Join(near, " or ") + "? "
	}
	return &UsageError{
		Message: fmt.Sprintf("nothing is known of the key %s", Word(key)),
		Hint:    hint + "croft ls lists the keys; " + flag + " acts on a new one",
	}
}

// distance counts how many bytes must be put in, left out, replaced, or swapped
// with their neighbour to make one word of the other.
func distance(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			other := 1
			if a[i-1] == b[j-1] {
				other = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+other)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
