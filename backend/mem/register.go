package mem

import (
	"context"
	"iter"
	"strconv"
	"sync"
	"time"

	"github.com/croft-dev/croft/internal/turns"
	"github.com/croft-dev/croft/store/cas"
	"github.com/croft-dev/croft/tenure"
)

// register is a map under a mutex. No version is used twice, not even after a
// wipe.
type register struct {
	now func() time.Time

	hub *turns.Hub

	mu    sync.Mutex // guards the fields below
	swaps int64
	kept  map[string]kept
}

type kept struct {
	record  tenure.Record
	version cas.Version
}

func newRegister(now func() time.Time) *register {
	r := &register{now: now, kept: map[string]kept{}}
	r.hub = turns.NewHub(driver{r})
	return r
}

func (r *register) Load(_ context.Context, key string) (cas.Entry, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.kept[key]
	return cas.Entry{Record: k.record, Version: k.version, Now: r.now()}, nil
}

func (r *register) Swap(_ context.Context, old cas.Version, next tenure.Record, _ bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kept[next.Key].version != old {
		return cas.ErrConflict
	}
	r.swaps++
	r.kept[next.Key] = kept{next, cas.Version(strconv.FormatInt(r.swaps, 10))}
	r.hub.Changed(next.Key)
	return nil
}

func (r *register) Drop(_ context.Context, key string, old cas.Version) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kept[key].version != old {
		return cas.ErrConflict
	}
	delete(r.kept, key)
	r.hub.Changed(key)
	return nil
}

// Scan yields a snapshot, so the loop's body may use the register.
func (r *register) Scan(context.Context) iter.Seq2[cas.Entry, error] {
	return func(yield func(cas.Entry, error) bool) {
		r.mu.Lock()
		entries := make([]cas.Entry, 0, len(r.kept))
		now := r.now()
		for _, k := range r.kept {
			entries = append(entries, cas.Entry{Record: k.record, Version: k.version, Now: now})
		}
		r.mu.Unlock()
		for _, e := range entries {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func (r *register) Now(context.Context) (time.Time, error) { return r.now(), nil }

// Close does nothing, because all handles share the register.
func (r *register) Close() error { return nil }

// Watch wakes at every change of the key.
func (r *register) Watch(ctx context.Context, key string) (<-chan struct{}, error) {
	return r.hub.Watch(ctx, key)
}

// driver subscribes to nothing: the register tells the hub of every change
// anyway.
type driver struct{ *register }

func (d driver) Subscribe(_ context.Context, key string) error {
	d.hub.Opened(key)
	return nil
}

func (driver) Unsubscribe(string) {}

// acts is the topic of operators' acts. It differs from every key, because no
// key is empty.
const acts = ""

// Acts announces operators' acts.
func (r *register) Acts(ctx context.Context) (<-chan string, error) {
	return r.hub.Listen(ctx, acts)
}

// Announce tells all listeners of an operator's act.
func (r *register) Announce(_ context.Context, key string) { r.hub.Acted(acts, key) }

func (r *register) wipe() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.kept)
	waited, _ := r.hub.Keys()
	for _, key := range waited {
		r.hub.Changed(key)
	}
}
