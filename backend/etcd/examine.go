package etcd

import (
	"context"

	"github.com/croft-dev/croft/store"
)

// Examine tells how fit the cluster is to keep leases.
func (s *Store) Examine(ctx context.Context) ([]store.Finding, error) { return nil, s.usable(ctx) }
