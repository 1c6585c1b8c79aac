package httpfence

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/croft-dev/croft/guard/gate"
)

// Require refuses requests whose stamp is missing or cannot be read. It hands
// the stamp of the others to next, which gets it with [StampFrom]. Requests
// with the method GET, HEAD, OPTIONS or TRACE pass without a stamp, too, unless
// a header may tell the service another method.
//
// Require admits nothing by itself. The handler does, in the same transaction
// as its write, and answers a refusal with [Refuse].
func Require(next http.Handler) http.Handler {
	reads := []string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stamp, err := StampOf(r.Header)
		switch {
		case err == nil:
			r = withStamp(r, stamp)
		case errors.Is(err, ErrNoStamp) && slices.Contains(reads, r.Method) && steers(r.Header) == "":
		default:
			Refuse(w, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Middleware lets valid writes in, one at a time for each resource, and refuses
// the others. Reads pass.
//
// The turn of a write ends when next returns, so all its work must be done by
// then. The request's context ends when the client leaves or the gate's lease
// is lost. A handler that goes on nevertheless keeps its turn.
//
// The mark is raised before next is called. If next fails, the same owner may
// write again. If its writes are numbered, it must use the next number.
func (g *Gate) Middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		wr, err := g.read(r)
		if g.o.RefuseNothing {
			if err == nil && wr.Resource != "" {
				err = g.core.Judge(r.Context(), wr.Write)
			}
			if err != nil || wr.Resource != "" {
				g.core.Observed(wr.Write, err)
			}
			if wr.Stamped {
				r = withStamp(r, wr.Stamp)
			}
			next.ServeHTTP(w, r)
			return
		}
		if err != nil {
			g.refuse(w, wr, err)
			return
		}
		if wr.Resource == "" {
			next.ServeHTTP(w, r)
			return
		}
		a, err := g.core.Arrive(r.Context(), wr.Write)
		if err != nil {
			g.refuse(w, wr, err)
			return
		}
		defer a.Depart()
		p, err := a.Enter(r.Context())
		if err != nil {
			g.refuse(w, wr, err)
			return
		}
		defer p.Answered() // also after a panic: the handler is over
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		defer context.AfterFunc(p.Context(), func() { cancel(context.Cause(p.Context())) })()
		r = r.WithContext(ctx)
		if wr.Stamped {
			r = withStamp(r, wr.Stamp)
		}
		start := time.Now()
		next.ServeHTTP(w, r)
		g.core.Emit(gate.Event{
			Kind: gate.Answered, Resource: wr.Resource, Method: wr.What, Key: wr.Stamp.Key,
			Token: wr.Stamp.Token, Took: time.Since(start),
		})
	})
}

// refuse answers a write that is not let in.
func (g *Gate) refuse(w http.ResponseWriter, wr write, err error) {
	Refuse(w, g.core.Refused(wr.Write, err))
}
