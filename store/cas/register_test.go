package cas_test

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/cas"
	"github.com/croft-dev/croft/tenure"
)

// register is a map. A test can intercept every step of it.
type register struct {
	mu       sync.Mutex
	records  map[string]tenure.Record
	versions map[string]cas.Version
	now      time.Time
	swaps    int
	durable  []bool
	closed   int

	// These run before the step, without the mutex. Their error is the step's
	// error.
	onLoad, onDrop func(ctx context.Context, key string) error
	onSwap         func(ctx context.Context, next tenure.Record) error
	// It runs after a swap has taken effect. Its error is the swap's error.
	afterSwap func(next tenure.Record) error
	// A scan also yields these records, and ends with this error.
	scanned []tenure.Record
	scanErr error
}

func newRegister() *register {
	return &register{
		records: map[string]tenure.Record{}, versions: map[string]cas.Version{},
		now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
	}
}

func (r *register) Load(ctx context.Context, key string) (cas.Entry, error) {
	if r.onLoad != nil {
		if err := r.onLoad(ctx, key); err != nil {
			return cas.Entry{}, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return cas.Entry{Record: r.records[key], Version: r.versions[key], Now: r.now}, nil
}

func (r *register) Swap(ctx context.Context, old cas.Version, next tenure.Record, durable bool) error {
	if r.onSwap != nil {
		if err := r.onSwap(ctx, next); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.versions[next.Key] != old {
		return cas.ErrConflict
	}
	r.put(next)
	r.durable = append(r.durable, durable)
	if r.afterSwap != nil {
		return r.afterSwap(next)
	}
	return nil
}

// put stores a record without any check. Tests also use it to damage records.
func (r *register) put(rec tenure.Record) {
	r.swaps++
	r.records[rec.Key], r.versions[rec.Key] = rec, cas.Version(strconv.Itoa(r.swaps))
}

func (r *register) Drop(ctx context.Context, key string, old cas.Version) error {
	if r.onDrop != nil {
		if err := r.onDrop(ctx, key); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.versions[key] != old {
		return cas.ErrConflict
	}
	delete(r.records, key)
	delete(r.versions, key)
	return nil
}

func (r *register) Scan(context.Context) iter.Seq2[cas.Entry, error] {
	return func(yield func(cas.Entry, error) bool) {
		r.mu.Lock()
		records, versions := slices.Collect(maps.Values(r.records)), maps.Clone(r.versions)
		r.mu.Unlock()
		for _, rec := range append(records, r.scanned...) {
			if !yield(cas.Entry{Record: rec, Version: versions[rec.Key]}, nil) {
				return
			}
		}
		if r.scanErr != nil {
			yield(cas.Entry{}, r.scanErr)
		}
	}
}

func (r *register) Now(context.Context) (time.Time, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now, nil
}

func (r *register) Close() error { r.closed++; return nil }

func (r *register) get(key string) tenure.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.records[key]
}

func (r *register) advance(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = r.now.Add(d)
}

// open makes a store of the register. The test closes it.
func (r *register) open(o *cas.Options) *cas.Store {
	if o == nil {
		o = &cas.Options{SweepEvery: -1}
	}
	return cas.New(r, o)
}

func acquire(key string) tenure.Request {
	return tenure.Request{Verb: tenure.Acquire, Key: key, Secret: tenure.NewSecret(), Owner: "ann", TTL: time.Minute}
}

func then(verb tenure.Verb, of tenure.Request) tenure.Request {
	return tenure.Request{Verb: verb, Key: of.Key, Secret: of.Secret, Progress: "half"}
}

// one applies one request.
func one(ctx context.Context, st store.Store, req tenure.Request) store.Answer {
	return st.Apply(ctx, []tenure.Request{req})[0]
}

// must applies requests and fails the test if one of them fails.
func must(t *testing.T, st store.Store, requests ...tenure.Request) {
	t.Helper()
	for i, a := range st.Apply(t.Context(), requests) {
		if a.Err != nil {
			t.Fatalf("%s of %q: %v", requests[i].Verb, requests[i].Key, a.Err)
		}
	}
}
