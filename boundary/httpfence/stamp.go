package httpfence

import (
	"context"
	"net/http"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/admission"
	"github.com/croft-dev/croft/internal/admission/overhttp"
)

// Header is the name of the header that carries a stamp in its text form.
const Header = overhttp.Header

// ErrNoStamp is matched by the refusal of a write without a stamp.
var ErrNoStamp = admission.ErrNoStamp

// SetStamp puts a stamp into the header of a request.
func SetStamp(h http.Header, s fence.Stamp) { h.Set(Header, s.String()) }

// StampOf reads the stamp of a request. Its error matches [ErrNoStamp] if there
// is none. It matches fence.ErrInvalid if the stamp cannot be read, if there is
// more than one, or if no store can have issued it.
func StampOf(h http.Header) (fence.Stamp, error) { return overhttp.StampOf(h) }

type contextKey int

const (
	stampKey contextKey = iota
	seqKey
)

// StampFrom returns the stamp of the request that a handler serves, as
// [Require] and [Gate.Middleware] have read it. If the request has none, ok is
// false.
func StampFrom(ctx context.Context) (s fence.Stamp, ok bool) {
	s, ok = ctx.Value(stampKey).(fence.Stamp)
	return s, ok
}

func withStamp(r *http.Request, s fence.Stamp) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), stampKey, s))
}

// Numbered returns a context for a request through a [Transport]: seq becomes
// the Seq of its stamp. Number the writes of one lease upwards from 1, and send
// each when the one before has been answered. A late or repeated copy is then
// refused.
func Numbered(ctx context.Context, seq uint64) context.Context {
	return context.WithValue(ctx, seqKey, seq)
}
