package croft

import (
	"context"
	"fmt"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/engine"
	"github.com/croft-dev/croft/store/refusals"
	"github.com/croft-dev/croft/tenure"
)

// Deed is what a process needs to act on a lease: see [Lease.Deed]. Its Text
// holds the secret. Pass it on in a file that only you can read, or in a pipe.
type Deed = tenure.Deed

// ParseDeed reads the text of a deed, as [Deed.Text] and "croft acquire" write
// it. Its error matches [ErrInvalid] and does not repeat the text.
func ParseDeed(text string) (Deed, error) { return tenure.ParseDeed(text) }

// Adopt takes up a lease that another process has acquired. From now on this
// client renews it. The lease has the same token, so that writes of both
// processes count: the other one must stop its work, and must neither renew nor
// release the lease. It is also possible after the deadline, as long as nobody
// else was granted the key.
//
// The TTL is the lease's present one. Adopt uses StallAfter, MaxHold,
// MaxFailures and Notice in o, and nothing else. MaxHold counts from now on.
//
// The error matches [ErrLost] if the lease no longer owns the key, [ErrInvalid]
// if the input is bad, and [ErrUnknown] if the store did not answer. Adopt may
// then be called again.
func (c *Client) Adopt(ctx context.Context, d Deed, o *LeaseOptions) (*Lease, error) {
	if d.TTL <= 0 || !d.Token.Valid() {
		return nil, fmt.Errorf("%w deed of %q: it has no TTL or no token; pass the whole deed on", ErrInvalid, d.Key)
	}
	from := o.copied()
	kept, err := c.newAcquire(d.Key, &LeaseOptions{
		TTL: d.TTL, StallAfter: from.StallAfter, MaxHold: from.MaxHold, Notice: from.Notice,
		MaxFailures: from.MaxFailures,
	})
	if err != nil {
		return nil, err
	}
	req := tenure.Request{Verb: tenure.Renew, Key: d.Key, Secret: d.Secret, Resume: true}
	if err := req.Check(); err != nil {
		return nil, err
	}
	l := &Lease{c: c, l: engine.Adopted(d, kept.Policy, c.clk.Now())}
	p := &pending{Call: engine.Call{Request: req, Lease: l.l}}
	if err := l.act(ctx, p, 2*c.o.CallTimeout); err != nil {
		c.notOwned(tenure.Renew, d.Stamp(), c.o.Owner, err)
		return nil, err
	}
	return c.leaseOf(ctx, p), nil
}

// Renew renews a lease by its deed, from any process, and returns its record.
// With resume, it also succeeds after the deadline, as long as nobody else was
// granted the key.
//
// The error matches [ErrNotOwned] if the lease no longer owns the key. If the
// store does not answer, Renew asks again until ctx ends, or for twice
// CallTimeout if ctx has no deadline. Then the error matches [ErrUnknown], and
// the call is safe to repeat. The same holds for Report and Release. A
// repeated Save is safe as long as no newer one was made.
func (c *Client) Renew(ctx context.Context, d tenure.Deed, resume bool) (tenure.Record, error) {
	return c.byDeed(ctx, d, tenure.Request{Verb: tenure.Renew, Resume: resume})
}

// SetTTL renews a lease with another TTL by its deed, from any process, and
// returns its record. The client that keeps the lease takes the TTL over with
// its next renewal. If the TTL is less than twice its Notice, that client sets
// its own again. Everything else is as for [Client.Renew] and [Lease.SetTTL].
func (c *Client) SetTTL(ctx context.Context, d tenure.Deed, ttl time.Duration) (tenure.Record, error) {
	req, err := retime(d.Key, d.Secret, ttl)
	if err != nil {
		return tenure.Record{}, err
	}
	return c.byDeed(ctx, d, req)
}

// Report reports progress on a lease by its deed, from any process. The client
// that keeps the lease notices it.
func (c *Client) Report(ctx context.Context, d tenure.Deed, marker string) (tenure.Record, error) {
	return c.byDeed(ctx, d, tenure.Request{Verb: tenure.Report, Progress: marker})
}

// Save saves a checkpoint for the next holder, by the lease's deed, from any
// process. See [Lease.Save]. It counts as progress, like Report.
func (c *Client) Save(ctx context.Context, d tenure.Deed, checkpoint []byte) (tenure.Record, error) {
	return c.byDeed(ctx, d, tenure.Request{Verb: tenure.Checkpoint, Checkpoint: string(checkpoint)})
}

// Release releases a lease by its deed, from any process. failed says that the
// work did not succeed. Releasing a released lease again succeeds.
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

// Refused records in the store that a guard refused a write with this stamp.
// target is the guard's. Operators see it with "croft inventory" and "croft
// watch", programs with package store/refusals. Refused does nothing if err is
// nil, or is not a refusal by a fence or by the law.
//
// It returns at once and cannot fail. The client records refusals in the
// background, and only for keys that the store knows. It counts equal ones
// together, records at most a few per second, and drops those that the store
// does not take. It records by itself when its own renewals, reports and
// releases are refused.
func (c *Client) Refused(stamp fence.Stamp, target string, err error) {
	if r, ok := refusals.Of(stamp, target, err); ok {
		c.refusals.Add(r)
	}
}

// LetIn records in the store that a write with this stamp would have been
// refused with err, and was let in all the same, because the guard only
// observes. Operators see it apart from refusals. Everything else is as for
// [Client.Refused].
func (c *Client) LetIn(stamp fence.Stamp, target string, err error) {
	if r, ok := refusals.Of(stamp, target, err); ok {
		r.Admitted = true
		c.refusals.Add(r)
	}
}

// Unsure records in the store that a guard could not ask whether the stamp's
// owner is the current one, and whether it admitted the write. The client keeps
// it until the store answers. Everything else is as for [Client.Refused].
func (c *Client) Unsure(stamp fence.Stamp, target string, admitted bool) {
	if r, ok := refusals.OfUnsure(stamp, target, admitted); ok {
		c.refusals.Add(r)
	}
}

// notOwned records that the store refused a request of a lease's holder.
func (c *Client) notOwned(verb tenure.Verb, stamp fence.Stamp, owner string, err error) {
	if r, ok := refusals.Of(stamp, "", err); ok && r.Code == "not_owned" {
		r.Act, r.Owner = string(verb), owner
		c.refusals.Add(r)
	}
}
