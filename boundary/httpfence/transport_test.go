package httpfence

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestAStampFollowsNoRedirectToAnotherHost: a redirect to the same host keeps
// the stamp. A redirect to another host drops it.
func TestAStampFollowsNoRedirectToAnotherHost(t *testing.T) {
	var seen journal
	note := func(_ http.ResponseWriter, r *http.Request) { seen.add("%s=%s", r.URL.Path, r.Header.Get(Header)) }
	thief := httptest.NewServer(http.HandlerFunc(note))
	defer thief.Close()
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/out":
			http.Redirect(w, r, thief.URL+"/stolen", http.StatusTemporaryRedirect)
		case "/moved":
			http.Redirect(w, r, "/here", http.StatusTemporaryRedirect)
		default:
			note(w, r)
		}
	}))
	defer service.Close()
	web := &http.Client{Transport: &Transport{Source: Fixed(older)}}
	for _, path := range []string{"/out", "/moved"} {
		resp, err := web.Post(service.URL+path, "text/plain", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	if want := "/stolen= /here=" + older.String(); seen.String() != want {
		t.Errorf("seen %s, want %s", seen.String(), want)
	}
}
