package gcs

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// TestNoGrantBeforeTheHolderBelieves: the service's clock shows whole seconds.
// A lease may begin at any fraction. Nobody else is granted it before its TTL
// has passed since its holder sent the request, and somebody is soon after.
func TestNoGrantBeforeTheHolderBelieves(t *testing.T) {
	t.Parallel()
	server := testenv.GCS(t)
	name := server.Bucket(t)
	for _, fraction := range []time.Duration{50 * time.Millisecond, 350 * time.Millisecond, 650 * time.Millisecond, 950 * time.Millisecond} {
		t.Run("at "+fraction.String(), func(t *testing.T) {
			t.Parallel()
			mine, next := acquire("clock/"+fraction.String(), "ann"), acquire("clock/"+fraction.String(), "bob")
			mine.TTL = 700 * time.Millisecond
			holder, other := open(t, name, &Options{Connection: at(server.Endpoint)}), open(t, name, &Options{Connection: at(server.Endpoint)})
			defer holder.Close()
			defer other.Close()
			now := time.Now()
			_ = clock.Sleep(t.Context(), now.Truncate(time.Second).Add(time.Second+fraction).Sub(now))
			sent := time.Now()
			if a := one(t.Context(), holder, mine); a.Err != nil {
				t.Fatal(a.Err)
			}
			for {
				a := one(t.Context(), other, next)
				held := time.Since(sent)
				if a.Err == nil {
					if held < mine.TTL {
						t.Errorf("granted to another after %s", held)
					}
					return
				}
				if !errors.Is(a.Err, tenure.ErrHeld) || held > testenv.Patience {
					t.Fatal(a.Err)
				}
				pause := 20 * time.Millisecond
				if held > mine.TTL {
					pause = 100 * time.Millisecond // from now on the grant only has to come
				}
				_ = clock.Sleep(t.Context(), pause)
			}
		})
	}
}

// TestALongDeadLeaseIsTakenAtOnce: by a process that has just started and knows
// nothing of its holder.
func TestALongDeadLeaseIsTakenAtOnce(t *testing.T) {
	t.Parallel()
	server := testenv.GCS(t)
	name := server.Bucket(t)
	long := time.Now().Add(-2 * time.Hour)
	then := open(t, name, &Options{Connection: at(server.Endpoint), clock: func() time.Time { return long }})
	defer then.Close()
	if a := one(t.Context(), then, acquire("dead/long", "ann")); a.Err != nil {
		t.Fatal(a.Err)
	}
	now := open(t, name, &Options{Connection: at(server.Endpoint)})
	defer now.Close()
	if a := one(t.Context(), now, acquire("dead/long", "bob")); a.Err != nil || a.Record.Cause != tenure.Expired {
		t.Errorf("%v, cause %q", a.Err, a.Record.Cause)
	}
}

// TestOnlyTheServiceTellsTheTime: the answers of a proxy or a cache are dated
// by another clock.
func TestOnlyTheServiceTellsTheTime(t *testing.T) {
	t.Parallel()
	server := testenv.GCS(t)
	name, way := server.Bucket(t), newProxy(t, server.Endpoint)
	st := open(t, name, &Options{Connection: at(way.URL), patience: time.Millisecond})
	defer st.Close()
	mine := acquire("time/holder", "ann")
	if a := one(t.Context(), st, mine); a.Err != nil {
		t.Fatal(a.Err)
	}
	for _, status := range []int{http.StatusBadGateway, http.StatusForbidden, http.StatusTooManyRequests} {
		for _, wrong := range []time.Duration{-time.Hour, time.Hour} {
			way.on(func(*http.Request) *fault { return &fault{status: status, date: time.Now().Add(wrong)} })
			if a := one(t.Context(), st, acquire("time/other", "bob")); !errors.Is(a.Err, store.ErrUnknown) {
				t.Fatal(a.Err)
			}
			way.on(nil)
			// The store remembers its own last write, and the time.
			if a := one(t.Context(), st, then(tenure.Renew, mine)); a.Err != nil || time.Until(a.Now).Abs() > 30*time.Minute {
				t.Errorf("status %d dated %s off: renewed at %s, %v", status, wrong, a.Now, a.Err)
			}
		}
	}
	kept := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Age": {"3600"}}}
	if authentic(kept) {
		t.Error("an answer from a cache tells the time")
	}
}
