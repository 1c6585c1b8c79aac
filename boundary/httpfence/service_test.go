package httpfence

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/admission/overhttp"
)

// effect is one write that took effect at a service.
type effect struct {
	id    string
	stamp fence.Stamp
}

// service is a service that cannot check stamps, and behaves badly. It stalls,
// breaks connections, and lets writes take effect long after their connection
// is gone. It keeps the order of their effects.
type service struct {
	answerWithin time.Duration
	harsh        bool // behaves even worse

	mu      sync.Mutex
	effects map[string][]effect // by resource
	inside  map[string]int      // handlers, by resource
	under   map[string]int      // open connections that proxies have made, by resource
	ports   map[string]string   // the resource of a connection, by the proxy's address
	stalls  int
	cuts    int
}

func newService(answerWithin time.Duration) *service {
	return &service{answerWithin: answerWithin, effects: map[string][]effect{}, inside: map[string]int{}, under: map[string]int{}, ports: map[string]string{}}
}

// settled reports whether nothing is on its way that could still take effect. A
// settle time promises that; but no time can promise it on a machine that is
// busy with tests.
func (s *service) settled(resource string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inside[resource] == 0 && s.under[resource] == 0
}

// behind makes a proxy report its connections.
func (s *service) behind(p *Proxy) {
	base := p.writes.Transport.(*forwarder).base
	dial := base.DialContext
	base.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err == nil {
			x, _ := overhttp.ExchangeIn(ctx)
			resource := x.Passage.Write.Resource
			s.mu.Lock()
			defer s.mu.Unlock()
			s.under[resource]++
			s.ports[conn.LocalAddr().String()] = resource
		}
		return conn, err
	}
}

// serve begins to serve.
func (s *service) serve(t *testing.T) string {
	server := httptest.NewUnstartedServer(s)
	server.Config.ConnState = func(conn net.Conn, state http.ConnState) {
		if state != http.StateClosed && state != http.StateHijacked { // a hijacker still counts as inside
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		end := conn.RemoteAddr().String()
		if resource, ok := s.ports[end]; ok {
			delete(s.ports, end)
			s.under[resource]--
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

func (s *service) count(n *int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*n++
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resource := strings.TrimPrefix(r.URL.Path, "/")
	s.enter(resource, 1)
	defer s.enter(resource, -1)
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	stamp, err := StampOf(r.Header)
	if err != nil {
		http.Error(w, err.Error(), http.StatusTeapot)
		return
	}
	take := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.effects[resource] = append(s.effects[resource], effect{string(body), stamp})
	}
	cut := func() {
		s.count(&s.cuts)
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			conn.Close()
		}
	}
	n := rand.IntN(100)
	if s.harsh && n < 40 {
		n = 72 + rand.IntN(28)
	}
	switch {
	case n < 72:
		take()
	case n < 91: // slow
		time.Sleep(time.Duration(1+rand.IntN(5)) * time.Millisecond)
		take()
	case n < 93: // too slow
		s.count(&s.stalls)
		time.Sleep(s.answerWithin + time.Duration(rand.IntN(30))*time.Millisecond)
		take()
	case n < 95: // no effect and no answer
		cut()
	case n < 97: // takes effect at once, but gives no answer
		take()
		cut()
	case n < 99: // takes effect long after
		cut()
		time.Sleep(time.Duration(5+rand.IntN(20)) * time.Millisecond)
		take()
	default: // gives half an answer, and then takes effect
		w.Header().Set("Content-Length", "10")
		fmt.Fprint(w, "half")
		_ = http.NewResponseController(w).Flush()
		cut()
		time.Sleep(time.Duration(rand.IntN(10)) * time.Millisecond)
		take()
	}
}

func (s *service) enter(resource string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inside[resource] += n
}

// judge returns the violations: a write that took effect after a newer one,
// that took effect twice, or that did not although its sender was told so.
func judge(s *service, acknowledged map[string][]effect) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var wrong []string
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	for resource, effects := range s.effects {
		var newest effect
		numbers := map[fence.Token]uint64{}
		times := map[string]int{}
		for i, e := range effects {
			times[e.id]++
			if e.stamp.Token < newest.stamp.Token {
				say("%s: effect %d: stale token %d after %d", resource, i, e.stamp.Token, newest.stamp.Token)
			} else {
				newest = e
			}
			if seq := e.stamp.Seq; seq != 0 {
				if last := numbers[e.stamp.Token]; seq <= last {
					say("%s: effect %d: write %d of token %d after its write %d", resource, i, seq, e.stamp.Token, last)
				}
				numbers[e.stamp.Token] = seq
			}
			if times[e.id] > 1 {
				say("%s: effect %d: write %s took effect twice", resource, i, e.id)
			}
		}
		for _, e := range acknowledged[resource] {
			if times[e.id] == 0 {
				say("%s: write %s of token %d was acknowledged and lost", resource, e.id, e.stamp.Token)
			}
			if e.stamp.Token > newest.stamp.Token {
				say("%s: token %d was acknowledged, but the last effect is of %d", resource, e.stamp.Token, newest.stamp.Token)
			}
		}
	}
	return wrong
}

// TestTheJudgeCatches: the judge finds each violation.
func TestTheJudgeCatches(t *testing.T) {
	for name, effects := range map[string][]effect{
		"stale after newer":  {{"a", newer}, {"b", older}, {"c", newer}},
		"twice":              {{"a", newer}, {"a", newer}, {"c", newer}},
		"out of number":      {{"a", numbered(newer, 2)}, {"b", numbered(newer, 1)}, {"c", newer}},
		"lost":               {{"a", newer}},
		"the newest is lost": {{"c", older}},
	} {
		s := newService(0)
		s.effects["r"] = effects
		if len(judge(s, map[string][]effect{"r": {{"c", newer}}})) == 0 {
			t.Errorf("%s: not caught", name)
		}
	}
	s := newService(0)
	s.effects["r"] = []effect{{"a", older}, {"b", numbered(newer, 1)}, {"c", numbered(newer, 2)}}
	if wrong := judge(s, map[string][]effect{"r": {{"c", newer}, {"a", older}}}); len(wrong) > 0 {
		t.Errorf("a good history was blamed: %q", wrong)
	}
}
