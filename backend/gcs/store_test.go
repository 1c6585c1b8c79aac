package gcs

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/storetest"
	"github.com/croft-dev/croft/tenure"
)

// TestConformance runs the whole suite of lease stores. The suite moves the
// clock. The server evaluates ifGenerationMatch on uploads and no other
// condition.
func TestConformance(t *testing.T) {
	t.Parallel()
	server := testenv.GCS(t)
	storetest.Run(t, func(tb testing.TB) storetest.Harness {
		name, clock := server.Bucket(tb), storetest.NewClock()
		return storetest.Harness{
			Open: func(tb testing.TB, o storetest.Options) store.Store {
				// The probe has tests of its own.
				return open(tb, name, &Options{Connection: paged(server.Endpoint), Retention: o.Retention, clock: clock.Now, SkipProbe: true})
			},
			Wipe:    func(tb testing.TB) { wipe(tb, server, name) },
			Advance: clock.Advance,
			Slow:    true,
			MaxKeys: 60,
		}
	})
}

// TestConformanceOnTheServersClock runs the checks on the clock that the store
// uses outside tests, which shows whole seconds.
func TestConformanceOnTheServersClock(t *testing.T) {
	t.Parallel()
	server := testenv.GCS(t)
	storetest.RunTimed(t, func(tb testing.TB) storetest.Harness {
		name := server.Bucket(tb)
		return storetest.Harness{
			Open: func(tb testing.TB, o storetest.Options) store.Store {
				return open(tb, name, &Options{Connection: paged(server.Endpoint), Retention: o.Retention, SkipProbe: true})
			},
			Wipe:    func(tb testing.TB) { wipe(tb, server, name) },
			Grain:   2 * time.Second,
			Slow:    true,
			MaxKeys: 60,
		}
	})
}

// paged makes a connection that lists 20 objects at a time, so that long
// listings have several pages.
func paged(endpoint string) Connection {
	return Connection{Endpoint: endpoint, Transport: smallPages{}}
}

type smallPages struct{}

func (smallPages) RoundTrip(r *http.Request) (*http.Response, error) {
	if q := r.URL.Query(); q.Has("maxResults") {
		q.Set("maxResults", "20")
		r = r.Clone(r.Context())
		r.URL.RawQuery = q.Encode()
	}
	return shared.RoundTrip(r)
}

// at makes a connection to an endpoint.
func at(endpoint string) Connection { return Connection{Endpoint: endpoint} }

func open(tb testing.TB, name string, o *Options) *Store {
	tb.Helper()
	var mine Options
	if o != nil {
		mine = *o
	}
	mine.sweepEvery = -1 // a random sweep would send more requests than the test counts
	st, err := Open(tb.Context(), name, "croft", &mine)
	if err != nil {
		tb.Fatalf("Open: %v", err)
	}
	return st
}

// wipe empties a bucket while handles on it are open.
func wipe(tb testing.TB, server *testenv.GCSServer, name string) {
	tb.Helper()
	c := at(server.Endpoint)
	b, err := dial(tb.Context(), name, &c)
	if err != nil {
		tb.Fatal(err)
	}
	for page, err := range b.pages(tb.Context(), "") {
		if err != nil {
			tb.Fatal(err)
		}
		for _, o := range page {
			if err := b.delete(tb.Context(), o.Name, nil); err != nil && judge(err) != missing {
				tb.Fatal(err)
			}
		}
	}
}

func one(ctx context.Context, st store.Store, req tenure.Request) store.Answer {
	return st.Apply(ctx, []tenure.Request{req})[0]
}

// acquire makes a request for a lease that is longer than any test takes, even
// on a busy machine.
func acquire(key, owner string) tenure.Request {
	return tenure.Request{Verb: tenure.Acquire, Key: key, Secret: tenure.NewSecret(), Owner: owner, TTL: time.Hour}
}

func then(verb tenure.Verb, of tenure.Request) tenure.Request {
	return tenure.Request{Verb: verb, Key: of.Key, Secret: of.Secret, Progress: "on"}
}
