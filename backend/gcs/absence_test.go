package gcs

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/tenure"
)

// These tests are about missing things: an object, a bucket, or the rest of an
// answer.

// TestAnAnswerThatBreaksOffIsNotAnAbsence: the body of a read breaks off. When
// the client library continues, that generation has been replaced. The holder
// must not learn that it holds nothing.
func TestAnAnswerThatBreaksOffIsNotAnAbsence(t *testing.T) {
	t.Parallel()
	server := testenv.GCS(t)
	name, way := server.Bucket(t), newProxy(t, server.Endpoint)
	near, st := open(t, name, &Options{Connection: at(server.Endpoint)}), open(t, name, &Options{Connection: at(way.URL)})
	defer near.Close()
	defer st.Close()
	mine := acquire("broken/body", "ann")
	if a := one(t.Context(), near, mine); a.Err != nil {
		t.Fatal(a.Err)
	}
	broken := func() func(*http.Request) *fault {
		var reads atomic.Int64
		return func(r *http.Request) *fault {
			switch {
			case isWrite(r):
				return nil
			case reads.Add(1) == 1:
				return &fault{half: true}
			case r.URL.Query().Get("generation") != "":
				return &fault{status: http.StatusNotFound, body: `{"error": {"message": "No such object"}}`}
			}
			return nil
		}
	}
	way.on(broken())
	if rec, err := st.Get(t.Context(), mine.Key); err != nil || rec.Grant != mine.Secret.Grant() {
		t.Errorf("shown as %+v, %v", rec, err)
	}
	way.on(broken())
	if a := one(t.Context(), st, then(tenure.Renew, mine)); a.Err != nil {
		t.Errorf("a renewal: %v", a.Err)
	}
}

// TestAWriteToADeletedObjectIsDecidedAgain: a deleted object is a condition
// that does not hold, whatever the status is. It is not a missing bucket.
func TestAWriteToADeletedObjectIsDecidedAgain(t *testing.T) {
	t.Parallel()
	server := testenv.GCSExact(t)
	name, way := server.Bucket(t), newProxy(t, server.Endpoint)
	st := open(t, name, &Options{Connection: at(way.URL)})
	defer st.Close()
	old, next := acquire("deleted/lease", "ann"), acquire("deleted/lease", "bob")
	for _, req := range []tenure.Request{old, then(tenure.Release, old)} {
		if a := one(t.Context(), st, req); a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	gone := func(object string) *fault {
		return &fault{status: http.StatusNotFound, body: `{"error": {"message": "No such object"}}`, before: func() {
			if err := st.reg.delete(t.Context(), object, nil); err != nil {
				t.Error(err)
			}
		}}
	}
	way.on(nth(1, func(r *http.Request) bool { return r.Method == http.MethodPost }, gone(st.reg.layout.Record(old.Key))))
	if a := one(t.Context(), st, next); a.Err != nil {
		t.Errorf("a claim: %v", a.Err)
	}
	way.on(nil)
	g := openGuard(t, name, "out.json", GuardOptions{Connection: at(way.URL), SkipProbe: true})
	if _, err := g.Write(t.Context(), stamp(10, 1, 0), strings.NewReader("first")); err != nil {
		t.Fatal(err)
	}
	way.on(nth(1, func(r *http.Request) bool { return r.Method == http.MethodPost }, gone("out.json")))
	if _, err := g.Write(t.Context(), stamp(11, 2, 0), strings.NewReader("second")); err != nil {
		t.Errorf("a guarded write: %v", err)
	}
}
