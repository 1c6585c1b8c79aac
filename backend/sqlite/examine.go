package sqlite

import (
	"context"

	"github.com/croft-dev/croft/store"
)

// Examine x
func (s *Store) Examine(ctx context.Context) ([]store.Finding, error) { return nil, nil }
