package turns

import (
	"context"
	"errors"

	"github.com/croft-dev/croft/internal/wait"
	"github.com/croft-dev/croft/store"
)

// CannotWatch returns the error of a watch that did not begin, for the caller
// of a store. closed is the store's own error for [ErrEnded]. The result
// matches [store.ErrUnknown].
func CannotWatch(ctx context.Context, err, closed error) error {
	switch {
	case ctx.Err() != nil:
		err = wait.Ended(ctx)
	case errors.Is(err, ErrEnded):
		err = closed
	}
	return store.Unknown(err)
}
