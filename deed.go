package croft

import (
	"context"

	"github.com/croft-dev/croft/tenure"
)

// Renew renews a lease of another process; with resume also after its deadline, while nobody else was granted.
func (c *Client) Renew(ctx context.Context, d tenure.Deed, resume bool) (tenure.Record, error) {
	return tenure.Record{}, ErrClosed
}

// Report reports progress on a lease of another process.
func (c *Client) Report(ctx context.Context, d tenure.Deed, marker string) (tenure.Record, error) {
	return tenure.Record{}, ErrClosed
}

// Release gives back a lease of another process.
func (c *Client) Release(ctx context.Context, d tenure.Deed, failed bool) (tenure.Record, error) {
	return tenure.Record{}, ErrClosed
}
