package redis

import (
	"context"

	"github.com/croft-dev/croft/store"
)

// Examine tells how fit the server is to keep leases: `croft doctor` prints it.
func (s *Store) Examine(ctx context.Context) ([]store.Finding, error) {
	return nil, s.usable(ctx)
}
