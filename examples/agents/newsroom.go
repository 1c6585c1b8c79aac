package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/croft-dev/croft/work/steward"
)

var newsroomSecret = []byte("known to the dispatcher and the newsroom")

// newsroom is a webhook receiver, as it should be written. It checks the
// signature, and remembers the keys that it has seen. A message may come twice
// if its reply was lost, but its key is the same.
type newsroom struct {
	*httptest.Server
	out io.Writer

	mu   sync.Mutex
	seen map[string]int
	news int
}

func openNewsroom(out io.Writer) *newsroom {
	n := &newsroom{out: out, seen: map[string]int{}}
	n.Server = httptest.NewServer(n)
	return n
}

func (n *newsroom) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err == nil {
		err = steward.Verify(newsroomSecret, n.URL, r.Header, body, time.Now(), 5*time.Minute)
	}
	var m message
	if err == nil {
		err = json.Unmarshal(body, &m)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	key := r.Header.Get(steward.HeaderKey)
	if n.seen[key]++; n.seen[key] > 1 {
		return // it is known: answer that all is well
	}
	n.news++
	says(n.out, "newsroom", "hears of %q by %s (Idempotency-Key %s)", m.Region, m.By, key)
}

// heard returns how many reports the newsroom has heard of.
func (n *newsroom) heard() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.news
}

func (n *newsroom) keys() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.seen)
}

// oneByOne keeps the output of several processes apart, line by line.
type oneByOne struct {
	mu sync.Mutex
	w  io.Writer
}

func (o *oneByOne) Write(line []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.w.Write(line)
}
