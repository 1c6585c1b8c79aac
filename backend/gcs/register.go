package gcs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/croft-dev/croft/internal/objects"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/cas"
	"github.com/croft-dev/croft/tenure"
)

// register is the compare-and-swap register in a bucket. Each key is one
// object, replaced on condition of its generation.
type register struct {
	*bucket
	layout objects.Layout
	memory objects.Memory
	bodies objects.Bodies
	pace   pace
	clock  func() time.Time // replaces the service's clock, in tests only
}

var (
	_ cas.Register      = (*register)(nil)
	_ cas.Recaller      = (*register)(nil)
	_ cas.PrefixScanner = (*register)(nil)
	_ cas.OldScanner    = (*register)(nil)
)

func version(generation int64) cas.Version {
	if generation == 0 {
		return ""
	}
	return cas.Version(strconv.FormatInt(generation, 10))
}

func generationOf(v cas.Version) (int64, error) {
	if v == "" {
		return 0, nil
	}
	return strconv.ParseInt(string(v), 10, 64)
}

// Load reads a key's object: one request.
func (r *register) Load(ctx context.Context, key string) (cas.Entry, error) {
	name := r.layout.Record(key)
	c, err := r.get(ctx, name)
	switch {
	case err == nil:
	case judge(err) == refused:
		return cas.Entry{}, store.Fault(err)
	default:
		return cas.Entry{}, store.Unreachable(err)
	}
	e, err := r.entryOf(name, c)
	if err == nil {
		err = r.time(&e)
	}
	if err != nil {
		return cas.Entry{}, err
	}
	if _, mine, ok := r.memory.Recall(key); ok && mine != e.Version {
		r.memory.Forget(key)
	}
	return e, nil
}

// entryOf returns the content of an object. A tombstone has no record, but it
// has a version, which the next record replaces.
func (r *register) entryOf(name string, c content) (cas.Entry, error) {
	if c.generation == 0 {
		return cas.Entry{}, nil
	}
	body, err := r.layout.Read(name, c.data)
	if err != nil {
		return cas.Entry{}, err
	}
	e := cas.Entry{Version: version(c.generation)}
	if body.Record != nil {
		e.Record = *body.Record
	}
	return e, nil
}

// time sets the time of an entry.
func (r *register) time(e *cas.Entry) error {
	if r.clock != nil {
		e.Now = r.clock()
		return nil
	}
	earliest, latest, known := r.bucket.clock.Span()
	if !known {
		return errors.New("gcs: the service does not say what time it is;" +
			" a proxy between must leave the Date header in place")
	}
	e.Now, e.Latest = earliest, latest
	e.Latest = objects.Latest(*e)
	return nil
}

// Recall returns what this register wrote last, if the time can be computed
// without a request.
func (r *register) Recall(key string) (cas.Entry, bool) {
	rec, v, ok := r.memory.Recall(key)
	if !ok {
		return cas.Entry{}, false
	}
	e := cas.Entry{Record: rec, Version: v}
	err := r.time(&e)
	return e, err == nil
}

// Swap replaces a key's object: one request, unless replies are lost.
func (r *register) Swap(ctx context.Context, old cas.Version, next tenure.Record, durable bool) error {
	// A grant clears ProgressAt, so no other durable change leaves it in a held
	// record.
	checkpoint := durable && next.State == tenure.Held && !next.ProgressAt.IsZero()
	if !durable || checkpoint {
		// Another write of this register may have been faster. Then there is no
		// need to send this one.
		overtaken := func() bool {
			_, mine, known := r.memory.Recall(next.Key)
			return known && mine != old
		}
		renewal := !checkpoint && !next.ProgressAt.After(next.Renewed)
		if before, _, known := r.memory.Recall(next.Key); known {
			renewal = !next.Renewed.Equal(before.Renewed)
		}
		if turn, err := r.pace.wait(ctx, next.Key, renewal, overtaken); err != nil {
			return err
		} else if !turn {
			return cas.ErrConflict
		}
	}
	defer r.pace.wrote(next.Key)
	r.memory.Forget(next.Key)
	generation, err := generationOf(old)
	if err != nil {
		return fmt.Errorf("gcs: version %q of %q: %w", old, next.Key, err)
	}
	data, _, err := objects.Write(next)
	if err != nil {
		return err
	}
	name := r.layout.Record(next.Key)
	waits := mostWaits
	if !durable {
		waits = 2 // other requests of its batch wait for it, and a renewal comes again anyway
	}
	generation, err = r.putWithin(ctx, waits, name, generation, data, next.Key)
	switch {
	case errors.Is(err, errEclipsed):
		return cas.ErrEclipsed
	case errors.Is(err, errMismatch):
		return cas.ErrConflict
	}
	if err == nil {
		r.memory.Keep(next, version(generation))
	}
	return err
}

// Now asks the service for its time. Every answer has it, so any request will
// do.
func (r *register) Now(ctx context.Context) (time.Time, error) {
	if r.clock != nil {
		return r.clock(), nil
	}
	if _, err := r.get(ctx, r.layout.Probe(r.address)); err != nil {
		return time.Time{}, err
	}
	var e cas.Entry
	err := r.time(&e)
	return e.Now, err
}

// Close does nothing. Connections are shared, and close by themselves when they
// are idle.
func (r *register) Close() error { return nil }
