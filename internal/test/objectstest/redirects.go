package objectstest

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

// Thief is a host that must get no requests. got counts them.
func Thief(tb testing.TB) (url string, got *atomic.Int64) {
	tb.Helper()
	got = &atomic.Int64{}
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { got.Add(1) }))
	tb.Cleanup(s.Close)
	return s.URL, got
}

// Redirects lets a client use an endpoint that redirects every request to
// another host, once for each redirect status. No request may arrive there.
func Redirects(tb testing.TB, use func(status int, endpoint string)) {
	tb.Helper()
	elsewhere, stolen := Thief(tb)
	for _, status := range []int{301, 302, 303, 307, 308} {
		var asked atomic.Int64
		front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			http.Redirect(w, r, elsewhere+r.URL.Path, status)
		}))
		use(status, front.URL)
		front.Close()
		if asked.Load() == 0 || stolen.Swap(0) != 0 {
			tb.Errorf("status %d: of %d requests some followed, or none was sent", status, asked.Load())
		}
	}
}
