package s3

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/croft-dev/croft/internal/objects"
	"github.com/croft-dev/croft/store/cas"
	"github.com/croft-dev/croft/tenure"
)

// register is the compare-and-swap register in a bucket. The package comment says how it works and why it is safe.
type register struct {
	*bucket
	layout objects.Layout
	memory objects.Memory
	bodies objects.Bodies
	drop   dropping
	// trialAge is trialAge, but in tests.
	trialAge time.Duration
	fake     func() time.Time // in place of the service's clock; nil but in tests
	own      func()           // lets go of what was opened for this register
}

var (
	_ cas.Register   = (*register)(nil)
	_ cas.Recaller   = (*register)(nil)
	_ cas.OldScanner = (*register)(nil)
)

// dying marks the version of an object whose deletion has been announced and may still happen.
const dying = "dying "

// Load reads a key's object: one request.
func (r *register) Load(ctx context.Context, key string) (cas.Entry, error) {
	name := r.layout.Record(key)
	o, err := r.get(ctx, name)
	if err != nil && !errors.Is(err, errAbsent) {
		return cas.Entry{}, err
	}
	return r.entry(name, o)
}

// entry is what an object says, and the time it was read at.
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
			// Claims would wait for it, and no sweep would remove it before.
			return cas.Entry{}, fmt.Errorf("%w: the object %s: it was deleted at %s, which is to come; delete it",
				cas.ErrDamaged, name, body.Dropped.At.Format(time.RFC3339))
		case !r.drop.lapsed(body.Dropped, o.date):
			held.Version = dying + held.Version
		}
	}
	if r.fake != nil {
		held.Now, held.Latest = r.fake(), time.Time{}
	}
	return held, nil
}

// Recall is what this register wrote last, at the time as far as it is known without asking.
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

// Swap writes the next record in place of a version: one request.
func (r *register) Swap(ctx context.Context, old cas.Version, next tenure.Record, _ bool) error {
	name := r.layout.Record(next.Key)
	if tag, ok := strings.CutPrefix(string(old), dying); ok {
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

// Now is the service's clock, to the second.
func (r *register) Now(ctx context.Context) (time.Time, error) {
	if r.fake != nil {
		return r.fake(), nil
	}
	return r.now(ctx)
}

// Close lets go of connections that were opened for this register.
func (r *register) Close() error {
	if r.own != nil {
		r.own()
	}
	return nil
}

// String names the place for messages.
func (r *register) String() string { return fmt.Sprintf("%s, prefix %q", r.where(), r.layout.Prefix()) }
