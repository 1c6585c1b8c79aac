package storetest

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/turns"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// plain is the simplest sound store: a map under a mutex. A flaw replaces one
// of its parts by a broken one.
type plain struct {
	clock *Clock

	mu       sync.Mutex
	records  map[string]tenure.Record
	watchers map[string][]chan struct{}
	acts     turns.Acts

	// The parts. Functions that change or read records are called with the
	// mutex held.
	law    func(rec tenure.Record, req tenure.Request, now time.Time) (tenure.Record, bool, error)
	name   func(key string) string               // the name under which a key is kept
	keep   func(rec tenure.Record) tenure.Record // the record as it is kept
	show   func(rec tenure.Record) tenure.Record // the record as callers get it
	answer func(a store.Answer) store.Answer     // the answer to one request
	ended  func(n int, err error) []store.Answer // the answers after the context has ended
	// carry carries out a batch. The mutex is free.
	carry  func(st store.Store, requests []tenure.Request) []store.Answer
	match  func(key, prefix string) bool
	order  func(records []tenure.Record)
	due    func(rec tenure.Record, now time.Time, retention time.Duration) bool
	sweep  func(p *plain, now time.Time, retention time.Duration) int // with the mutex free
	wake   func(c chan struct{})
	tell   func(p *plain, h *handle, req tenure.Request) // announces an operator's act
	unhear func(ctx context.Context) context.Context     // the context that ends announcements
	unlook func(c chan struct{})                         // ends a watch: closes its channel
	skew   func(handle int) time.Duration
	closes func(p *plain)
	reads  func(h *handle, key string) tenure.Record // with the mutex free
	// gap runs between reading a record and writing it, with the mutex free. If
	// it is nil, the mutex stays held.
	gap func()

	opened int
}

// sound makes a store with no flaw.
func sound() *plain {
	same := func(rec tenure.Record) tenure.Record { return rec }
	return &plain{
		clock: NewClock(), records: map[string]tenure.Record{}, watchers: map[string][]chan struct{}{},
		law: tenure.Apply,
		tell: func(p *plain, _ *handle, req tenure.Request) {
			if req.Verb.ByHand() {
				p.acts.Tell(req.Key)
			}
		},
		unhear: func(ctx context.Context) context.Context { return ctx },
		name:   func(key string) string { return key },
		keep:   same,
		show:   copied,
		answer: func(a store.Answer) store.Answer { return a },
		ended:  store.Failed,
		carry: func(st store.Store, requests []tenure.Request) []store.Answer {
			var answers []store.Answer
			for _, req := range requests {
				answers = append(answers, st.(*handle).one(req))
			}
			return answers
		},
		match: strings.HasPrefix,
		order: func(records []tenure.Record) {
			slices.SortFunc(records, func(a, b tenure.Record) int { return strings.Compare(a.Key, b.Key) })
		},
		due: tenure.Record.Droppable,
		sweep: func(p *plain, now time.Time, retention time.Duration) int {
			p.mu.Lock()
			defer p.mu.Unlock()
			before := len(p.records)
			maps.DeleteFunc(p.records, func(_ string, rec tenure.Record) bool { return p.due(rec, now, retention) })
			return before - len(p.records)
		},
		wake: func(c chan struct{}) {
			select {
			case c <- struct{}{}:
			default:
			}
		},
		unlook: func(c chan struct{}) { close(c) },
		skew:   func(int) time.Duration { return 0 },
		closes: func(*plain) {},
		reads: func(h *handle, key string) tenure.Record {
			h.mu.Lock()
			defer h.mu.Unlock()
			return h.show(h.records[h.name(key)])
		},
	}
}

func copied(rec tenure.Record) tenure.Record {
	rec.History, rec.Guards = slices.Clone(rec.History), slices.Clone(rec.Guards)
	return rec
}

// place returns the store as the suite opens it.
func (p *plain) place(testing.TB) Harness {
	return Harness{
		Open: func(_ testing.TB, o Options) store.Store {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.opened++
			if o.Retention == 0 {
				o.Retention = store.DefaultRetention
			}
			return &handle{plain: p, nth: p.opened, retention: o.Retention, seen: map[string]tenure.Record{}}
		},
		Wipe:     func(testing.TB) { p.mu.Lock(); defer p.mu.Unlock(); clear(p.records) },
		Advance:  p.clock.Advance,
		Slow:     true,
		Patience: 300 * time.Millisecond,
	}
}

// handle is one client of a plain store.
type handle struct {
	*plain
	nth       int
	retention time.Duration
	closing   sync.Once
	seen      map[string]tenure.Record // for flaws that cache
}

func (h *handle) now() time.Time { return tenure.Time(h.clock.Now().Add(h.skew(h.nth))) }

func (h *handle) Apply(ctx context.Context, requests []tenure.Request) []store.Answer {
	if ctx.Err() != nil {
		return h.ended(len(requests), ctx.Err())
	}
	return h.carry(h, requests)
}

// one carries out one request.
func (h *handle) one(req tenure.Request) store.Answer {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	rec := h.records[h.name(req.Key)]
	if h.gap != nil {
		h.mu.Unlock()
		h.gap()
		h.mu.Lock()
	}
	req.Guards = slices.Clone(req.Guards)
	next, changed, err := h.law(rec, req, now)
	if changed && err == nil {
		h.records[h.name(req.Key)] = h.keep(next)
		for _, c := range h.watchers[req.Key] {
			h.wake(c)
		}
		h.tell(h.plain, h, req)
	}
	return h.answer(store.Answer{Record: h.show(next), Now: now, Err: err})
}

func (h *handle) Get(ctx context.Context, key string) (tenure.Record, error) {
	if err := fence.CheckKey(key); err != nil {
		return tenure.Record{}, err
	}
	if ctx.Err() != nil {
		return tenure.Record{}, ctx.Err()
	}
	return h.reads(h, key), nil
}

func (h *handle) List(ctx context.Context, prefix string) iter.Seq2[tenure.Record, error] {
	return func(yield func(tenure.Record, error) bool) {
		if ctx.Err() != nil {
			yield(tenure.Record{}, ctx.Err())
			return
		}
		h.mu.Lock()
		var records []tenure.Record
		for _, rec := range h.records {
			if h.match(rec.Key, prefix) {
				records = append(records, h.show(rec))
			}
		}
		h.mu.Unlock()
		h.order(records)
		for _, rec := range records {
			if !yield(rec, nil) {
				return
			}
		}
	}
}

func (h *handle) Now(context.Context) (time.Time, error) { return h.now(), nil }

func (h *handle) Sweep(context.Context) (int, error) {
	return h.sweep(h.plain, h.now(), h.retention), nil
}

func (h *handle) Watch(ctx context.Context, key string) (<-chan struct{}, error) {
	if err := fence.CheckKey(key); err != nil {
		return nil, err
	}
	c := make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watchers[key] = append(h.watchers[key], c)
	context.AfterFunc(ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.watchers[key] = slices.DeleteFunc(h.watchers[key], func(other chan struct{}) bool { return other == c })
		h.unlook(c)
	})
	return c, nil
}

func (h *handle) Acts(ctx context.Context) (<-chan string, error) {
	return h.acts.Listen(h.unhear(ctx)), nil
}

func (h *handle) Close() error {
	h.closing.Do(func() { h.closes(h.plain) })
	return nil
}
