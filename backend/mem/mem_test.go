package mem_test

import (
	"errors"
	"testing"
	"time"

	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

func claim(key string) tenure.Request {
	return tenure.Request{Verb: tenure.Acquire, Key: key, Secret: tenure.NewSecret(), Owner: "ann", TTL: time.Minute}
}

// TestOneNameIsOneStore: callers that open the same URL contend with each
// other, even if others close theirs.
func TestOneNameIsOneStore(t *testing.T) {
	ctx := t.Context()
	open := func(url string) store.Store {
		st, err := store.Open(ctx, url)
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	// The process keeps the store, so each run of the test needs another name.
	name := "mem://store-" + string(tenure.NewSecret()[:8])
	one, two, other := open(name), open(name), open(name+"-other")
	if a := one.Apply(ctx, []tenure.Request{claim("k")}); a[0].Err != nil {
		t.Fatal(a[0].Err)
	}
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	if a := two.Apply(ctx, []tenure.Request{claim("k")}); !errors.Is(a[0].Err, tenure.ErrHeld) {
		t.Errorf("a second handle on the same name: %v, want held", a[0].Err)
	}
	if a := other.Apply(ctx, []tenure.Request{claim("k")}); a[0].Err != nil {
		t.Errorf("another name: %v, want a grant", a[0].Err)
	}
	if a := one.Apply(ctx, []tenure.Request{claim("k2")}); !errors.Is(a[0].Err, store.ErrUnknown) {
		t.Errorf("after Close: %v, want unknown", a[0].Err)
	}
}

// TestABadURLIsNamed: the parts of a URL that a store in memory cannot honour
// are refused, not ignored.
func TestABadURLIsNamed(t *testing.T) {
	for _, url := range []string{"mem://", "mem:///path", "mem://name/path", "mem://name?ttl=1s", "mem://user:pw@name"} {
		if _, err := store.Open(t.Context(), url); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("%s: %v, want invalid", url, err)
		}
	}
}

// TestWipeForgetsAndWakes: a wipe removes all records and wakes the waiters.
func TestWipeForgetsAndWakes(t *testing.T) {
	ctx := t.Context()
	st := mem.New(nil)
	st.Apply(ctx, []tenure.Request{claim("k")})
	woken, err := st.Watch(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	st.Wipe()
	<-woken
	rec, err := st.Get(ctx, "k")
	if err != nil || !rec.IsZero() {
		t.Errorf("after a wipe: %+v, %v; want nothing", rec, err)
	}
}
