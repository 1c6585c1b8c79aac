package guard

import (
	"context"

	"github.com/croft-dev/croft/fence"
)

// Current tells whether a stamp's owner is the current one. A guard's mark only
// knows the newest owner that has come to the resource. Package guard/current
// asks the lease store.
type Current interface {
	// Check returns nil if the stamp's grant holds its key now. Otherwise the
	// error matches tenure.ErrNotOwned. If the stamp is malformed, the error
	// matches fence.ErrInvalid. Any other error says that Check could not find
	// out. The answer can be a moment old.
	Check(ctx context.Context, stamp fence.Stamp) error
}
