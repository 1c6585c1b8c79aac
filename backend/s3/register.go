package s3

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/croft-dev/croft/internal/objects"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/cas"
	"github.com/croft-dev/croft/tenure"
)

// register is the compare-and-swap register in a bucket. The package comment
// says how it works and why it is safe.
type register struct {
	*bucket
	layout objects.Layout
	memory objects.Memory
	bodies objects.Bodies
	drop   dropping
	// trialAge is the constant of that name, except in tests.
	trialAge time.Duration
	fake     func() time.Time // replaces the service's clock, in tests only
	own      func()           // closes connections that were opened for this register
}

var (
	_ cas.Register   = (*register)(nil)
	_ cas.Recaller   = (*register)(nil)
	_ cas.OldScanner = (*register)(nil)
)

// dropPending begins the version of an object whose announced deletion may
// still happen.
const dropPending = "dying "

// Load reads a key's object: one request.
func (r *register) Load(ctx context.Context, key string) (cas.Entry, error) {
	name := r.layout.Record(key)
	o, err := r.get(ctx, name)
	switch {
	case err == nil, errors.Is(err, errAbsent):
		return r.entry(name, o)
	case faultOf(err) == refused:
		return cas.Entry{}, store.Fault(err)
	}
	return cas.Entry{}, store.Unreachable(err)
}

// entry returns the content of an object, and the time when it was read.
func (r *register) entry(name string, o object) (cas.Entry, error) {
	var held cas.Entry
	held.Now, held.Latest = r.clock.At(o.date)
	if o.data != nil {
		body, err := r.layout.Read(name, o.data)
		if err != nil {
			return cas.Entry{}, err
		}
		held.Version = cas.Version(o.tag)
		switch {
		case body.Record != nil:
			held.Record = *body.Record
			held.Latest = objects.Latest(held, o.modified.Add(time.Second))
		case body.Dropped.At.After(o.date.Add(time.Minute)):
			// Acquires would wait for such a deletion, and no sweep would
			// remove the announcement earlier.
			return cas.Entry{}, fmt.Errorf("%w: the object %s: it was deleted at %s, which is to come; delete it",
				cas.ErrDamaged, name, body.Dropped.At.Format(time.RFC3339))
		case !r.drop.lapsed(body.Dropped, o.date):
			held.Version = dropPending + held.Version
		}
	}
	if r.fake != nil {
		held.Now, held.Latest = r.fake(), time.Time{}
	}
	return held, nil
}

// Recall returns what this register wrote last. The time is computed, without a
// request.
func (r *register) Recall(key string) (cas.Entry, bool) {
	rec, version, known := r.memory.Recall(key)
	if !known {
		return cas.Entry{}, false
	}
	held := cas.Entry{Record: rec, Version: version}
	if r.fake != nil {
		held.Now = r.fake()
		return held, true
	}
	held.Now, held.Latest, known = r.clock.Span()
	held.Latest = objects.Latest(held)
	return held, known
}

// Swap writes the next record in place of a version: one request. If a deletion
// of the object is pending, Swap waits for it instead and returns ErrConflict.
func (r *register) Swap(ctx context.Context, old cas.Version, next tenure.Record, _ bool) error {
	name := r.layout.Record(next.Key)
	if tag, ok := strings.CutPrefix(string(old), dropPending); ok {
		return r.awaitDrop(ctx, name, tag)
	}
	data, _, err := objects.Write(next)
	if err != nil {
		return err
	}
	tag, err := r.swap(ctx, name, string(old), data)
	if err != nil {
		r.memory.Forget(next.Key)
		switch {
		case errors.Is(err, errEclipsed):
			return cas.ErrEclipsed
		case errors.Is(err, errOvertaken):
			return cas.ErrConflict
		}
		return err
	}
	r.memory.Keep(next, cas.Version(tag))
	return nil
}

// Now returns the service's time, to the second.
func (r *register) Now(ctx context.Context) (time.Time, error) {
	if r.fake != nil {
		return r.fake(), nil
	}
	return r.now(ctx)
}

// Close closes connections that were opened for this register.
func (r *register) Close() error {
	if r.own != nil {
		r.own()
	}
	return nil
}

// String names the bucket and the prefix for messages.
func (r *register) String() string { return fmt.Sprintf("%s, prefix %q", r.where(), r.layout.Prefix()) }
