package httpfence

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/admission"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// TestTheHeaderCarriesOneStamp: a stamp that was set is read back. A missing, a
// malformed and a second stamp have different errors.
func TestTheHeaderCarriesOneStamp(t *testing.T) {
	h := http.Header{}
	if _, err := StampOf(h); !errors.Is(err, ErrNoStamp) {
		t.Errorf("no header: %v, want ErrNoStamp", err)
	}
	want := numbered(newer, 7)
	SetStamp(h, want)
	if got, err := StampOf(h); err != nil || got != want || h.Get("croft-stamp") != want.String() {
		t.Errorf("read back %v, %v", got, err)
	}
	h.Add(Header, want.String())
	if _, err := StampOf(h); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("two: %v, want ErrInvalid", err)
	}
	for _, text := range []string{"", "7", "croft1:1:x:0:k", want.String() + ", " + want.String(), fence.Stamp{Key: "k", Token: fence.MaxToken, Grant: want.Grant}.String()} {
		h.Set(Header, text)
		if _, err := StampOf(h); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("%q: %v, want ErrInvalid", text, err)
		}
	}
}

// TestTheTransportAddsTheStampOfItsLease: the transport asks for the stamp for
// each request. It sends nothing once the lease has ended.
func TestTheTransportAddsTheStampOfItsLease(t *testing.T) {
	var seen journal
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen.add("%s", r.Header.Get(Header)) }))
	defer service.Close()
	client := newClient(t, mem.New(nil), "ann")
	lease, err := client.Acquire(t.Context(), "jobs/a", nil)
	if err != nil {
		t.Fatal(err)
	}
	web := &http.Client{Transport: &Transport{Source: lease}}
	put := func(seq uint64) error {
		ctx := t.Context()
		if seq > 0 {
			ctx = Numbered(ctx, seq)
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, service.URL, strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		SetStamp(req.Header, older) // set by an outer transport: the inner one replaces it
		resp, err := web.Do(req)
		if err == nil {
			resp.Body.Close()
		}
		if got, _ := StampOf(req.Header); got != older {
			t.Errorf("the caller's request was changed: %v", got)
		}
		return err
	}
	if err := errors.Join(put(0), put(3)); err != nil {
		t.Fatal(err)
	}
	if want := lease.Stamp().String() + " " + numbered(lease.Stamp(), 3).String(); seen.String() != want {
		t.Errorf("sent %s, want %s", seen.String(), want)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := put(0); !errors.Is(err, croft.ErrLost) {
		t.Errorf("after the lease: %v, want ErrLost", err)
	}
	web.Transport = &Transport{}
	if err := put(0); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("no source: %v, want ErrInvalid", err)
	}
	web.Transport = &Transport{Source: Fixed(older)}
	if err := put(0); err != nil || !strings.HasSuffix(seen.String(), older.String()) {
		t.Errorf("a fixed stamp: %v, %s", err, seen.String())
	}
}

// TestAProblemSaysWhatTheCommandLineSays: a problem has the codes of --json, a
// status for each, and becomes the same error at the client.
func TestAProblemSaysWhatTheCommandLineSays(t *testing.T) {
	_, stale := newer.Mark().Admit(older)
	other := older
	other.Grant, other.Token = newer.Grant, newer.Token
	other.Grant = "00000000000000000000000000000000"
	_, collision := newer.Mark().Admit(other)
	_, repeated := numbered(newer, 3).Mark().Admit(numbered(newer, 3))
	elsewhere := newer
	elsewhere.Key = "jobs/b"
	_, wrong := newer.Mark().Admit(elsewhere)
	_, none := StampOf(http.Header{})
	for _, c := range []struct {
		err    error
		status int
		code   string
		match  error
	}{
		{stale, 409, "stale", fence.ErrStale},
		{collision, 409, "collision", fence.ErrCollision},
		{repeated, 409, "repeated", fence.ErrRepeated},
		{wrong, 409, "wrong_key", fence.ErrWrongKey},
		{&tenure.HeldError{}, 409, "held", tenure.ErrHeld},
		{&tenure.NotOwnedError{}, 409, "not_owned", tenure.ErrNotOwned},
		{&croft.LostError{Loss: croft.Superseded}, 409, "not_owned", tenure.ErrNotOwned},
		{store.Unknown(errors.New("gone")), 503, "unknown", store.ErrUnknown},
		{errors.New("a disk said no"), 503, "unknown", store.ErrUnknown},
		{none, 428, "invalid", fence.ErrInvalid},
		{fence.Stamp{}.Check(), 400, "invalid", fence.ErrInvalid},
	} {
		w := httptest.NewRecorder()
		Refuse(w, c.err)
		resp := w.Result()
		err := RefusalIn(resp)
		var p *ProblemError
		if !errors.As(err, &p) || p.Status != c.status || resp.StatusCode != c.status || p.Code != c.code || !errors.Is(err, c.match) || p.Sent {
			t.Errorf("%v: %d %+v, want %d %s", c.err, resp.StatusCode, err, c.status, c.code)
		}
		want := c.err.Error()
		if general, ok := admission.Meanings[c.code]; ok { // the error may name things that the client must not learn
			want = general
		}
		if p.Detail != want {
			t.Errorf("%v: the detail is %q, want %q", c.err, p.Detail, want)
		}
		if got := resp.Header.Get("Content-Type"); got != ProblemType {
			t.Errorf("%v: content type %q", c.err, got)
		}
		if !strings.Contains(w.Body.String(), `"code":"`+c.code+`"`) {
			t.Errorf("%v: the body can no longer be read: %s", c.err, w.Body)
		}
	}
	w := httptest.NewRecorder()
	Refuse(w, stale)
	if want := `{"title":"Conflict","status":409,"detail":"write refused: stale token 41 for \"jobs/a\", newest admitted is 42; stop this work, it has a newer owner","code":"stale","sent":false,"key":"jobs/a","token":41,"newest":42}` + "\n"; w.Body.String() != want {
		t.Errorf("the body is\n%s, want\n%s", w.Body, want)
	}
	for _, foreign := range []string{`{"code":"out_of_stock"}`, `{}`, `<html>`, ``} {
		w := httptest.NewRecorder()
		w.Header().Set("Content-Type", ProblemType)
		w.WriteHeader(409)
		w.Body.WriteString(foreign)
		if err := RefusalIn(w.Result()); err != nil {
			t.Errorf("somebody else's problem %s was taken for ours: %v", foreign, err)
		}
	}
}
