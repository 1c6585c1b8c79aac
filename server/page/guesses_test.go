package page

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestGuessesOfTokensAreBounded: ten wrong ones a minute from one address, also
// when they come at the same moment. Then even the right one has to wait, or
// the answer would tell that it is right. Another address signs in meanwhile.
func TestGuessesOfTokensAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, rules{"ann": "a/"})
	post := func(remote, token string) *httptest.ResponseRecorder {
		form := url.Values{"token": {token}, "next": {"/ui/"}}
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, Base+"signin", strings.NewReader(form.Encode()))
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.RemoteAddr = remote
		w := httptest.NewRecorder()
		r.front.Config.Handler.ServeHTTP(w, req)
		return w
	}
	want := func(what string, w *httptest.ResponseRecorder, status int) {
		t.Helper()
		if w.Code != status {
			t.Errorf("%s: %d, want %d", what, w.Code, status)
		}
	}
	for n := range 2 * maxWrong { // right ones do not count, and no forms without a token
		want("a right token", post("192.0.2.1:"+strconv.Itoa(2000+n), "token-of-ann"), http.StatusSeeOther)
		want("no token", post("192.0.2.1:2000", ""), http.StatusUnauthorized)
	}
	var mu sync.Mutex
	statuses := map[int]int{}
	var all sync.WaitGroup
	for n := range 5 * maxWrong {
		all.Go(func() {
			w := post("192.0.2.1:"+strconv.Itoa(3000+n), "guess"+strconv.Itoa(n))
			mu.Lock()
			defer mu.Unlock()
			statuses[w.Code]++
		})
	}
	all.Wait()
	if statuses[http.StatusUnauthorized] != maxWrong || statuses[http.StatusTooManyRequests] != 4*maxWrong {
		t.Errorf("wrong tokens are answered %v; want 401 %d times, then 429", statuses, maxWrong)
	}
	w := post("192.0.2.1:4000", "token-of-ann")
	want("the right token after that", w, http.StatusTooManyRequests)
	if n, err := strconv.Atoi(w.Header().Get("Retry-After")); err != nil || n < 1 || n > 60 {
		t.Errorf("Retry-After: %q", w.Header().Get("Retry-After"))
	}
	if len(w.Result().Cookies()) != 0 || !strings.Contains(w.Body.String(), "Try again in") {
		t.Errorf("the page is %s", w.Body)
	}
	want("the right token from elsewhere", post("192.0.2.2:4000", "token-of-ann"), http.StatusSeeOther)
}

// TestGuessesAreForgotten after a minute, and before that if there are too many
// addresses.
func TestGuessesAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g guesses
		here := addressOf("[2001:db8::1]:1")
		for range maxWrong {
			if _, wait := g.begin(here); wait != 0 {
				t.Fatal(wait)
			}
			time.Sleep(time.Second)
		}
		if _, wait := g.begin(addressOf("[2001:db8::2%eth0]:9")); wait != wrongFor-maxWrong*time.Second {
			t.Errorf("another address of the same network waits %s", wait)
		}
		time.Sleep(wrongFor - maxWrong*time.Second)
		if _, wait := g.begin(here); wait != 0 {
			t.Errorf("a minute after the first try: %s", wait)
		}
		if _, wait := g.begin(here); wait != time.Second {
			t.Errorf("the next try: %s", wait)
		}
		for n := range maxGuessers + 200 { // from maxGuessers on, each try looks at all
			time.Sleep(time.Millisecond)
			g.begin(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}), 32))
			if len(g.tries) > maxGuessers {
				t.Fatalf("%d addresses are remembered", len(g.tries))
			}
		}
		time.Sleep(wrongFor)
		g.begin(here)
		for n := range maxGuessers {
			g.begin(netip.PrefixFrom(netip.AddrFrom4([4]byte{11, 0, byte(n >> 8), byte(n)}), 32))
		}
		if right, wait := g.begin(here); wait != 0 {
			t.Errorf("%s", wait)
		} else if right(); len(g.tries) > maxGuessers {
			t.Errorf("%d addresses are remembered", len(g.tries))
		}
	})
}
