package httpfence

import (
	"fmt"
	"net/http"

	"github.com/croft-dev/croft/fence"
)

// Source gives a [Transport] its stamps. A *croft.Lease is one. If the source
// has a method Err() error that returns an error, as a lease that has ended
// does, nothing is sent.
type Source interface {
	Stamp() fence.Stamp
}

// Fixed is a [Source] that always gives the same stamp. It is for programs that
// got theirs from CROFT_STAMP.
type Fixed fence.Stamp

// Stamp returns the stamp.
func (f Fixed) Stamp() fence.Stamp { return fence.Stamp(f) }

// Transport adds the stamp of its source to every request. It is safe for
// concurrent use if its source and base are.
//
// Use a separate client for the guarded service, so that other services do not
// get the stamp. The transport drops the stamp from a request that is
// redirected to another host.
type Transport struct {
	// Source gives the stamp, anew for every request.
	Source Source
	// Base sends the request. Default: http.DefaultTransport.
	Base http.RoundTripper
}

// RoundTrip sends a copy of the request that carries the stamp. It replaces a
// stamp that the request has already. If the source has ended, RoundTrip
// returns its error and sends nothing.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	stamp, err := t.stamp(r)
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // as a RoundTripper must
		}
		return nil, err
	}
	out := r.Clone(r.Context())
	if elsewhere(r) {
		out.Header.Del(Header)
	} else {
		SetStamp(out.Header, stamp)
	}
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	return base.RoundTrip(out)
}

// elsewhere reports whether a redirect has taken a request to another host. The
// service there must not get the stamp: it could write in the owner's name.
func elsewhere(r *http.Request) bool {
	for before := r.Response; before != nil && before.Request != nil; before = before.Request.Response {
		from := before.Request.URL
		if from.Host != r.URL.Host || from.Scheme == "https" && r.URL.Scheme != "https" {
			return true
		}
	}
	return false
}

func (t *Transport) stamp(r *http.Request) (fence.Stamp, error) {
	if t.Source == nil {
		return fence.Stamp{}, fmt.Errorf("%w transport: it has no source of stamps; give it a lease", fence.ErrInvalid)
	}
	if ends, ok := t.Source.(interface{ Err() error }); ok {
		if err := ends.Err(); err != nil {
			return fence.Stamp{}, fmt.Errorf("%s %s was not sent: %w", r.Method, r.URL.Redacted(), err)
		}
	}
	stamp := t.Source.Stamp()
	if seq, ok := r.Context().Value(seqKey).(uint64); ok {
		stamp.Seq = seq
	}
	return stamp, stamp.Check()
}
