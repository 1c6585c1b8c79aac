package croft

import (
	"context"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store/refusals"
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

// Refused notes in the store, for operators, that a guard refused a write with
// this stamp: "croft inventory" and "croft watch" show it. target is the guard's.
// An err that is nil, or no refusal of a fence or of the law, is not noted.
//
// It returns at once and cannot fail. Refusals are recorded in the background,
// and only of keys that the store knows. Like ones are counted together, a client
// records at most a few every second, and forgets what the store does not take.
// The client notes by itself when its own renewals, reports and releases are
// refused. Package store/refusals reads them.
func (c *Client) Refused(stamp fence.Stamp, target string, err error) {
	if err == nil {
		return
	}
	if r, ok := refusals.Of(stamp, target, err); ok {
		c.refusals.Add(r)
	}
}

// notOwned notes that a request by a lease's holder was refused.
func (c *Client) notOwned(verb tenure.Verb, stamp fence.Stamp, owner string, err error) {
	if err == nil {
		return
	}
	if r, ok := refusals.Of(stamp, "", err); ok && r.Code == "not_owned" {
		r.Act, r.Owner = string(verb), owner
		c.refusals.Add(r)
	}
}
