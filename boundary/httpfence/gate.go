package httpfence

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/admission"
	"github.com/croft-dev/croft/internal/admission/overhttp"
)

// Gate lets writes to resources in, one at a time, and only those whose stamps
// still count. It is safe for concurrent use. The package comment says on which
// promise it relies.
type Gate struct {
	o    Options
	core *admission.Gate
}

// NewGate makes a gate. Its error matches fence.ErrInvalid. Close the gate when
// it is no longer used.
func NewGate(o Options) (*Gate, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	core, err := admission.New(o.admission())
	if err != nil {
		return nil, err
	}
	return &Gate{o: o, core: core}, nil
}

// Close lets no more writes in and refuses those that wait. It waits until ctx
// ends for the writes that are inside, and gives the leases back. So another
// gate can go on at once where nothing is in doubt.
//
// If writes are still inside when ctx ends, Close leaves their leases to lapse,
// and its error names the resources.
func (g *Gate) Close(ctx context.Context) error { return g.core.Close(ctx) }

// write is one request. If its resource is empty, it is a read.
type write struct {
	admission.Write
	exempt bool // a rule says that the request is a read
}

// read finds out what a request writes to, and whose it is.
func (g *Gate) read(r *http.Request) (write, error) {
	to, err := g.o.classify(r)
	w := write{admission.Write{Resource: to.resource, What: r.Method}, to.exempt}
	if err != nil || to.resource == "" {
		return w, err
	}
	w.Client = overhttp.ClientOf(r)
	if err := fence.CheckKey(g.core.Options.LeasePrefix + to.resource); err != nil {
		return w, fmt.Errorf("the resource has no name for a lease: %w", err)
	}
	w.Stamp, err = StampOf(r.Header)
	if err == nil {
		err = g.o.Keys.Verify(w.Stamp)
	}
	switch {
	case err == nil:
		w.Stamped = true
	case errors.Is(err, ErrNoStamp) && g.o.AllowUnstamped:
	default:
		return w, err
	}
	if w.Stamped && to.key != "" && w.Stamp.Key != to.key {
		return w, &fence.RefusedError{Err: fence.ErrWrongKey, Presented: w.Stamp, Mark: fence.Mark{Key: to.key}}
	}
	return w, nil
}
