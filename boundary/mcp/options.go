package mcp

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/fence/signed"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/guard/gate"
	"github.com/croft-dev/croft/internal/admission"
)

// Options shape what [Serve] and a [Proxy] do. Marks and Client are required.
// Everything else has a default.
type Options struct {
	// Stamp says whose calls these are. It comes from the process that started
	// this one, never from a message. Default: every write is refused. A
	// [Proxy] takes stamps from its requests, and needs none here.
	Stamp fence.Stamp
	// Rules say which calls are writes to which resource. The first rule that
	// matches counts. A call that no rule matches is refused. Default: every
	// tool writes to one resource, which is named after the stamp's key and
	// belongs to it.
	Rules []Rule
	// Reads lists the tools that write nothing, whatever the Rules say.
	Reads []string
	// TrustAnnotations makes a tool a read if the upstream says so
	// (readOnlyHint). Default: what the upstream says of its tools counts for
	// nothing.
	TrustAnnotations bool
	// Tasks lets calls become tasks, which go on after their answer. Then the
	// resource is not kept until the task has ended. Default: neither side
	// learns that the other supports tasks.
	Tasks bool
	// Marks opens the guard that keeps the mark of a resource; see
	// httpfence.MarksAt. Served opens a second one, as httpfence.Options has
	// it. Serve closes them.
	Marks  func(ctx context.Context, resource string) (guard.Guard, error)
	Served func(ctx context.Context, resource string) (guard.Guard, error)
	// Client takes the lease that makes this the only gate of a resource, on
	// the key httpfence.DefaultLeasePrefix + resource. It takes it for each
	// write anew, because the proxies of other agents wait for it. The caller
	// closes it.
	Client *croft.Client
	// Notes is a client of the store in which refusals are noted. Default:
	// Client.
	Notes *croft.Client
	// TTL is the TTL of these leases. All gates of a resource must have the
	// same. At most 1 minute. Default: 15 seconds.
	TTL time.Duration
	// Settle is how long a resource stays closed when a call may still take
	// effect: although the upstream has been killed, because the upstream has
	// asked others, or because an upstream over HTTP goes on. With
	// croft.Forever only an operator opens it. Default: 30 seconds.
	Settle time.Duration
	// Wait is how long a write waits for its turn, for the proxies of others,
	// and for a closed resource to open. Default: 1 minute.
	Wait time.Duration
	// AnswerWithin is how long the upstream may take to answer a write. After
	// that the write is in doubt. Default: 10 minutes. A [Proxy] cannot kill
	// its upstream: there it is at most Settle, and by default 30 seconds.
	AnswerWithin time.Duration
	// Current, if set, also refuses a stamp whose owner is not the current one.
	// See package guard/current. The caller closes it. Default: the mark alone
	// decides.
	Current guard.Current
	// Keys, if set, are the public keys of those who issue stamps. A stamp that
	// none of them has signed is refused. Default: stamps need no signature.
	Keys *signed.Keys
	// AdmitUnsure lets a write in by the mark alone when Current cannot tell.
	// Default: it is refused.
	AdmitUnsure bool
	// RefuseNothing passes every request on, also those that would be refused,
	// and hides no tasks. The gate judges each write, tells of it
	// ([gate.Observed]) and notes it in the Client's store. It is for a trial:
	// nothing is protected meanwhile; see httpfence.Options. Messages that
	// could be read in two ways are refused all the same. Default: off.
	RefuseNothing bool
	// Idempotent answers a call that was answered before, under the same stamp
	// and with the same arguments, from memory. So a client that has lost an
	// answer may call again. Failures are not kept, nor are answers of more
	// than 1 MiB, nor more than 4096 answers or 64 MiB in all. Nothing is kept
	// beyond the end of this process. Default: every call is carried out.
	Idempotent bool
	// Credential is the secret of the upstream. Default: none.
	Credential Credential
	// Observe is called for every [gate.Event]. It must be quick, and safe for
	// concurrent use. Default: nothing is called.
	Observe func(gate.Event)
	// Dropped is called for every message of the upstream that is not passed
	// on: because it is no message, or because nobody waits for it. Default:
	// nothing is called.
	Dropped func(error)
}

// Upstream is a running MCP server that speaks over its standard streams.
type Upstream struct {
	In  io.WriteCloser // its standard input
	Out io.Reader      // its standard output
	// Kill kills the server with all its descendants. It returns nil when
	// nothing of them is alive. It is called once, at the end.
	Kill func(context.Context) error
	// AllowFor, if set, bounds how long the server may run from now on. The
	// bound must hold also while this process is stopped.
	AllowFor func(time.Duration) error
}

// ProxyOptions shape a [Proxy]. Marks and Client are required.
type ProxyOptions struct {
	Options
	// ConnectWithin is how long it may take to connect to the upstream, TLS
	// included. Default: 5 seconds.
	ConnectWithin time.Duration
	// ReceiveWithin is how long a client may take to send a message. Default:
	// 1 minute.
	ReceiveWithin time.Duration
	// MaxBodies bounds the total size of all messages of clients that are kept,
	// and of the answers to reads, in bytes. Each value in them counts as 96
	// bytes. One client may have as much as it leaves free. Default: 128 MiB.
	MaxBodies int64
	// Hosts lists the names by which clients call the proxy, as
	// httpfence.ProxyOptions has it. Web pages may call the proxy only from
	// these hosts, from the proxy's own, and on a loopback address from this
	// machine's.
	Hosts []string
	// Transport sends reads. Default: a copy of http.DefaultTransport. If it is
	// an *http.Transport, its TLS settings and its Proxy are used for writes,
	// too.
	Transport http.RoundTripper
}

// usual fills in the defaults.
func (o *Options) usual(answerWithin time.Duration) error {
	if o.Client == nil {
		return fmt.Errorf("%w proxy: it has no client for its own leases; "+
			"without them two proxies could stand in front of one resource", fence.ErrInvalid)
	}
	if o.Settle == 0 {
		o.Settle = 30 * time.Second
	}
	if o.Wait == 0 {
		o.Wait = time.Minute
	}
	if o.AnswerWithin == 0 {
		o.AnswerWithin = answerWithin
	}
	if o.AnswerWithin < 0 {
		return fmt.Errorf("%w AnswerWithin %s: it must be more than 0", fence.ErrInvalid, o.AnswerWithin)
	}
	if o.Dropped == nil {
		o.Dropped = func(error) {}
	}
	if err := o.Credential.check(); err != nil {
		return err
	}
	o.hiding()
	o.Tasks = o.Tasks || o.RefuseNothing
	o.Rules = slices.Clone(o.Rules)
	for i, r := range o.Rules {
		var err error
		if o.Rules[i], err = r.prepared(r.String()); err != nil {
			return err
		}
	}
	return nil
}

// gate makes the gate of the resources.
func (o *Options) gate() (*admission.Gate, error) {
	return admission.New(admission.Options{
		Marks: o.Marks, Served: o.Served, Client: o.Client, Notes: o.Notes, TTL: o.TTL, Settle: o.Settle,
		Wait: o.Wait, Standby: o.Wait, Current: o.Current, AdmitUnsure: o.AdmitUnsure,
		RefuseNothing: o.RefuseNothing, Observe: o.Observe, Hide: o.Credential.hide,
	})
}
