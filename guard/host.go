package guard

import (
	"context"
	"errors"
)

// ErrElsewhere is matched when a target is not on the server of the store that
// was asked to open it.
var ErrElsewhere = errors.New("the target is not in the store's own place")

// Host is a store that can open guards beside its own records: on the same
// server, and in the same database, bucket or file.
type Host interface {
	// Guard opens the guard that a target names, over the store's own
	// connection. A stranger may have written the target, so Guard takes only
	// the name of the resource from it. If the target is elsewhere, Guard
	// contacts nobody and returns ErrElsewhere.
	Guard(ctx context.Context, target string) (Guard, error)
}
