// Package objectstest attacks a lease store on object storage, as somebody
// could who may write to its bucket. The package calls this attacker the
// neighbour.
package objectstest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/objects"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/cas"
	"github.com/croft-dev/croft/tenure"
)

// Harness is a bucket with an empty store, and the neighbour's access to it.
type Harness struct {
	Store interface {
		store.Store
		store.Sweeper
	}
	Layout objects.Layout
	// Advance moves the clock by which the store's leases expire.
	Advance func(time.Duration)
	// Put writes an object without the store.
	Put func(tb testing.TB, o Object)
	// Get reads an object without the store, as it is stored. It returns nil if
	// there is none.
	Get func(tb testing.TB, name string) []byte
	// Strange are more names that are no record's. The neighbour puts records
	// there. The services disagree on the names that they allow.
	Strange []string
}

// Object is an object that the neighbour writes.
type Object struct {
	Name     string
	Data     []byte
	Encoding string // its Content-Encoding
}

// Planted plants one object after the other under the name of a record. No
// request may be decided by such an object. A listing must show the other
// records. A sweep must leave the object, and nothing may change it.
func Planted(tb testing.TB, p Harness) {
	tb.Helper()
	ctx := tb.Context()
	s := &seed{tb: tb, key: "planted/good"}
	good := tenure.Request{Verb: tenure.Acquire, Key: s.key, Secret: tenure.NewSecret(), Owner: "ann", TTL: time.Hour}
	held := p.Store.Apply(ctx, []tenure.Request{good})[0]
	if held.Err != nil {
		tb.Fatal(held.Err)
	}
	s.held = held.Record

	planted := map[string]Object{}
	for _, row := range plants {
		o := row.object(s, "planted/"+row.what)
		o.Name = p.Layout.Record("planted/" + row.what)
		p.Put(tb, o)
		planted[row.what] = o
		for what, err := range p.ask(ctx, "planted/"+row.what) {
			switch {
			case !errors.Is(err, store.ErrUnknown) || errors.Is(err, cas.ErrDamaged) == row.newer:
				tb.Errorf("%s: %s: %.300v, want unknown, and damaged unless it is newer", row.what, what, err)
			case len(err.Error()) > 4096 || !strings.Contains(err.Error(), o.Name):
				tb.Errorf("%s: %s: %.300v, %d bytes long, want a short error that names %s",
					row.what, what, err, len(err.Error()), o.Name)
			}
		}
	}
	ghost := s.record("planted/ghost", func(*tenure.Record) {})
	for _, name := range append([]string{
		"readme.txt", "x.json", strings.ToUpper(strings.Repeat("ab", 32)) + ".json",
		strings.Repeat("ab", 32) + ".json.bak",
	}, p.Strange...) {
		p.Put(tb, Object{Name: p.Layout.Records() + name, Data: ghost})
	}
	for _, prefix := range []string{"", "planted/"} {
		var listed []string
		var failed error
		for rec, err := range p.Store.List(ctx, prefix) {
			if failed = err; err == nil {
				listed = append(listed, fmt.Sprint(rec.Key, " ", rec.Token))
			}
		}
		if want := fmt.Sprint(s.key, " ", s.held.Token); len(listed) != 1 || listed[0] != want ||
			!errors.Is(failed, cas.ErrDamaged) || strings.Count(failed.Error(), "\n") > 10 {
			tb.Errorf("under %q: listed %q, then %v; want %q and damage, in ten lines", prefix, listed, failed, want)
		}
	}

	for _, verb := range []tenure.Verb{tenure.Renew, tenure.Release} {
		if a := p.Store.Apply(ctx, []tenure.Request{{Verb: verb, Key: s.key, Secret: good.Secret}})[0]; a.Err != nil {
			tb.Errorf("%s of the good lease: %v", verb, a.Err)
		}
	}
	p.Advance(100 * store.DefaultRetention)
	if n, err := p.Store.Sweep(ctx); n != 1 || !errors.Is(err, cas.ErrDamaged) {
		tb.Errorf("a sweep: %d dropped, %.200v; want the good one alone and damage", n, err)
	}
	for _, row := range plants {
		if o := planted[row.what]; !bytes.Equal(p.Get(tb, o.Name), o.Data) || p.Get(tb, o.Name) == nil {
			tb.Errorf("%s: it was changed", row.what)
		}
	}
}

// ask sends every verb for a key, and returns the errors of the answers.
func (p Harness) ask(ctx context.Context, key string) map[string]error {
	got := map[string]error{}
	for _, req := range []tenure.Request{
		{Verb: tenure.Acquire, Key: key, Secret: tenure.NewSecret(), Owner: "bob", TTL: time.Hour},
		{Verb: tenure.Renew, Key: key, Secret: tenure.NewSecret()},
		{Verb: tenure.Release, Key: key, Secret: tenure.NewSecret()},
		{
			Verb: tenure.Takeover, Key: key, Secret: tenure.NewSecret(),
			Owner: "opal", Actor: "opal", Note: "a test", TTL: time.Hour,
		},
	} {
		got[string(req.Verb)] = p.Store.Apply(ctx, []tenure.Request{req})[0].Err
	}
	_, got["get"] = p.Store.Get(ctx, key)
	return got
}
