package croft

import (
	"context"
	"time"
)

// Work is what is done under a lease. Its context ends when the lease or the caller's context does.
type Work = func(ctx context.Context, l *Lease) error

// Do acquires the lease, does the work, and releases it.
func (c *Client) Do(ctx context.Context, key string, o *LeaseOptions, fn Work) error {
	return ErrClosed
}

// Every is Do, once per period.
func (c *Client) Every(ctx context.Context, key string, period time.Duration, o *LeaseOptions, fn Work) error {
	return ErrClosed
}

// HoldFor is Do, and keeps the key from everybody for hold after it was acquired.
func (c *Client) HoldFor(ctx context.Context, key string, hold time.Duration, o *LeaseOptions, fn Work) error {
	return ErrClosed
}

// Loop does the work again and again: in every interval one of all replicas that call Loop does it.
func (c *Client) Loop(ctx context.Context, key string, interval time.Duration, o *LeaseOptions, fn Work) error {
	return ErrClosed
}
