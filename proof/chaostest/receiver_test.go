//go:build unix

package chaostest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/croft-dev/croft/work/steward"
)

// receiver is a webhook receiver. It keeps all requests by Idempotency-Key, and
// is as unreliable as receivers are.
type receiver struct {
	*httptest.Server
	mu   sync.Mutex
	got  map[string][]string // bodies
	bad  []string
	many int
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{got: map[string][]string{}}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return // the sender was killed
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := steward.Verify(secret, "http://"+req.Host+req.URL.RequestURI(), req.Header, body, time.Now(), time.Hour); err != nil {
		r.bad = append(r.bad, err.Error())
	}
	key := req.Header.Get(steward.HeaderKey)
	r.many++
	again := len(r.got[key]) > 0
	switch {
	case !again && r.many%17 == 0: // refused for now
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case !again && r.many%13 == 0: // accepted, but reported as failed
		w.WriteHeader(http.StatusInternalServerError)
	case !again && r.many%19 == 0: // accepted, but the reply is lost
		r.got[key] = append(r.got[key], string(body))
		panic(http.ErrAbortHandler)
	}
	r.got[key] = append(r.got[key], string(body))
}
