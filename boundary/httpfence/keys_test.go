package httpfence

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/fence/signed"
)

// TestAGateWithKeysAdmitsOnlyIssuedStamps: a forged one gets 400 and moves no
// mark, however high its token is. The handler gets the signature.
func TestAGateWithKeysAdmitsOnlyIssuedStamps(t *testing.T) {
	t.Parallel()
	w := newWorld()
	key, stranger := signed.NewKey(), signed.NewKey()
	_, front := w.proxy(t, "gate", http.HandlerFunc(echo), func(o *ProxyOptions) { o.Keys = key.Public() })
	altered := key.Sign(older)
	altered.Token = newer.Token
	altered.Grant = newer.Grant
	for what, stamp := range map[string]fence.Stamp{
		"an unsigned stamp": newer, "a stranger's": stranger.Sign(newer), "an altered one": altered,
	} {
		send(t, "PUT", front.URL+"/r/1", stamp, "x").want(t, what, 400, "invalid")
		if mark := w.mark(t, "r/1"); !mark.IsZero() {
			t.Errorf("%s has moved the mark to %+v", what, mark)
		}
	}
	send(t, "PUT", front.URL+"/r/1", key.Sign(older), "x").want(t, "a signed stamp", 200, "")
	send(t, "PUT", front.URL+"/r/1", key.Sign(numbered(older, 7)), "x").want(t, "numbered", 200, "")
	send(t, "PUT", front.URL+"/r/1", key.Sign(numbered(older, 7)), "x").want(t, "a copy", 409, "repeated")
	if mark := w.mark(t, "r/1"); mark != numbered(older, 7).Mark() {
		t.Errorf("the mark is %+v", mark)
	}
	g := w.gate(t, "another", func(o *Options) { o.Keys = key.Public() })
	behind := httptest.NewServer(g.Middleware(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		s, ok := StampFrom(r.Context())
		if !ok || key.Public().Verify(s) != nil {
			rw.WriteHeader(http.StatusTeapot)
		}
	})))
	defer behind.Close()
	send(t, "PUT", behind.URL+"/r/2", key.Sign(older), "x").want(t, "to a handler", 200, "")
}

// TestAGateThatObservesTellsOfForgedStamps, and their marks do not move.
func TestAGateThatObservesTellsOfForgedStamps(t *testing.T) {
	t.Parallel()
	w := newWorld()
	key := signed.NewKey()
	var h heard
	_, front := w.proxy(t, "gate", http.HandlerFunc(echo), func(o *ProxyOptions) {
		o.RefuseNothing, o.Observe, o.Keys = true, h.hear, key.Public()
	})
	send(t, "PUT", front.URL+"/r/1", newer, "x").want(t, "an unsigned stamp", 200, "")
	if told, mark := h.take(), w.mark(t, "r/1"); told != "observed 400 invalid" || !mark.IsZero() {
		t.Errorf("the gate told %q, and the mark is %+v", told, mark)
	}
	send(t, "PUT", front.URL+"/r/1", key.Sign(older), "x").want(t, "a signed stamp", 200, "")
	if told, mark := h.take(), w.mark(t, "r/1"); told != "write_admitted" || mark != older.Mark() {
		t.Errorf("the gate told %q, and the mark is %+v", told, mark)
	}
}
