package page

import (
	"bytes"
	"context"
	"net/http"
	"net/url"

	"github.com/croft-dev/croft/internal/wire"
)

// answer is an answer of the API.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(b)
}

// call makes a call of the API in the visitor's name. It returns the body, or
// the refusal.
func (p *Page) call(v *visit, method, path string, body []byte) ([]byte, *problem) {
	r, err := http.NewRequestWithContext(v.Context(), method, path, bytes.NewReader(body))
	if err != nil {
		return nil, notThere
	}
	r.Header = p.asClient(v, v.token).Header
	r.Host, r.RemoteAddr, r.TLS = v.Host, v.RemoteAddr, v.TLS
	if body != nil {
		r.Header.Set("Content-Type", wire.JSON)
	}
	a := &answer{header: http.Header{}}
	p.api.ServeHTTP(a, r)
	if a.status == http.StatusOK {
		return a.body.Bytes(), nil
	}
	refused, err := wire.ReadProblem(a.body.Bytes())
	if err != nil {
		return nil, noAnswer
	}
	return nil, &problem{a.status, titles[refused.Code], refused.Detail}
}

// titles are short names of refusals.
var titles = map[wire.Code]string{
	wire.Held: "The key is held", wire.NotOwned: "Not owned", wire.Unknown: "Nobody knows whether it was done",
	wire.Invalid: "Not possible so", wire.NotFound: "Nothing is there", wire.NotAllowed: "You may not do this",
	wire.Unauthenticated: "Signed out", wire.Unsupported: "The store cannot do this", wire.Busy: "Too much at once",
	wire.TooLarge: "Too long",
}

// events answers GET events: the API's stream of all changes. It ends with the
// session.
func (p *Page) events(v *visit) error {
	r := p.asClient(v, v.token)
	if !v.until.IsZero() {
		ctx, cancel := context.WithDeadline(r.Context(), v.until)
		defer cancel()
		r = r.WithContext(ctx)
	}
	r.URL = &url.URL{Path: "/v1/events", RawQuery: v.URL.RawQuery}
	if last := v.Header.Get("Last-Event-ID"); last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	p.api.ServeHTTP(v.w, r)
	return nil
}
