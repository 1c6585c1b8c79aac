package guard

import (
	"context"
	"errors"
)

// ErrElsewhere is matched when a target is not in the place of the store that
// was asked to open it.
var ErrElsewhere = errors.New("the target is not in the store's own place")

// Host is a store that can open guards in its own place: on the same server
// and in the same database, bucket or file.
type Host interface {
	// Guard opens the guard that a target names, over the store's own
	// connection. The target may have been written by a stranger: Guard takes
	// the name of the resource from it, and nothing else. If the target is in
	// another place, Guard asks nobody and returns ErrElsewhere.
	Guard(ctx context.Context, target string) (Guard, error)
}
