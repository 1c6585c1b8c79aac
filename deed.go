package croft

import (
	"context"

	"github.com/croft-dev/croft/tenure"
)

// Renew renews a lease by its deed, from whatever process, and returns its record; with resume also after its deadline, while nobody else was granted. Its
// error matches ErrNotOwned when the lease is no longer the holder's. An unknown outcome is asked for again until ctx ends (without a deadline: for twice
// CallTimeout); then the error matches ErrUnknown and it is safe to repeat. The same goes for Report and Release.
func (c *Client) Renew(ctx context.Context, d tenure.Deed, resume bool) (tenure.Record, error) {
	return c.byDeed(ctx, d, tenure.Request{Verb: tenure.Renew, Resume: resume})
}

// Report reports progress on a lease by its deed, from whatever process. The process that keeps the lease sees it.
func (c *Client) Report(ctx context.Context, d tenure.Deed, marker string) (tenure.Record, error) {
	return c.byDeed(ctx, d, tenure.Request{Verb: tenure.Report, Progress: marker})
}

// Release gives back a lease by its deed, from whatever process, after success or failure. Releasing what was released already is success.
func (c *Client) Release(ctx context.Context, d tenure.Deed, failed bool) (tenure.Record, error) {
	return c.byDeed(ctx, d, tenure.Request{Verb: tenure.Release, Failed: failed})
}

func (c *Client) byDeed(ctx context.Context, d tenure.Deed, req tenure.Request) (tenure.Record, error) {
	req.Key, req.Secret = d.Key, d.Secret
	if err := req.Check(); err != nil {
		return tenure.Record{}, err
	}
	answer, err := c.ask(ctx, req, 2*c.o.CallTimeout)
	c.notOwned(req.Verb, d.Stamp(), "", err)
	return answer.Record, err
}
