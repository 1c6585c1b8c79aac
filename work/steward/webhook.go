package steward

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/work"
)

// Webhook delivers effects by POST. The request's body is the effect's body.
// Its Idempotency-Key is the effect's identity, the same in every attempt. A
// receiver that remembers the keys it has seen gets every effect once.
//
// The answer decides the outcome:
//
//   - 2xx: delivered.
//   - 408, 425, 429 and 503: not delivered, tried again. With Retry-After,
//     nothing is sent to the receiver before that time.
//   - Other 3xx and 4xx: refused for good.
//   - No connection to the receiver: not delivered, tried again.
//   - Anything else, such as a 500 or no reply: unknown.
type Webhook struct {
	URL string
	// Secrets sign each request, if there are any; see [Verify]. There are
	// several while one is being replaced. No other receiver must have them: it
	// could sign requests in the dispatcher's name.
	Secrets [][]byte
	// Header has further headers to send, for example the receiver's own
	// authorization.
	Header http.Header
	// Client makes the requests. Default: a client that keeps more connections
	// open than http.DefaultClient. Redirects are never followed, because a
	// POST would become a GET.
	Client *http.Client
	// Now is the clock of signatures. Default: time.Now.
	Now func() time.Time
}

// check returns an error if a secret is too short.
func (w Webhook) check() error {
	for _, secret := range w.Secrets {
		if err := CheckSecret(secret); err != nil {
			return err
		}
	}
	return nil
}

// checkSecrets returns an error if a secret is too short, or signs requests to
// two receivers. Two destinations with the same URL are one receiver.
func checkSecrets(to map[string]Deliverer) error {
	type destination struct{ name, url string }
	has := map[string]destination{}
	for _, name := range slices.Sorted(maps.Keys(to)) {
		var w Webhook
		switch d := to[name].(type) {
		case Webhook:
			w = d
		case *Webhook:
			w = *d
		}
		if err := w.check(); err != nil {
			return fmt.Errorf("destination %q: %w", name, err)
		}
		for _, secret := range w.Secrets {
			other, taken := has[string(secret)]
			if taken && other.url != w.URL {
				return fmt.Errorf("%w destinations %q and %q: they have one secret, "+
					"so that each receiver could sign requests to the other; give each its own",
					fence.ErrInvalid, other.name, name)
			}
			has[string(secret)] = destination{name, w.URL}
		}
	}
	return nil
}

// Deliver posts the effect.
func (w Webhook) Deliver(ctx context.Context, e work.Effect) error {
	var sent atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { sent.Store(true) },
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, bytes.NewReader(e.Body))
	if err != nil {
		// The error of net/http is not wrapped: it quotes the whole URL, which
		// may hold a secret.
		return Refused(fmt.Errorf("%w webhook: its URL cannot be read", fence.ErrInvalid))
	}
	if err := w.check(); err != nil {
		return Undelivered(err)
	}
	w.setHeaders(req, e)
	client := http.Client{Transport: transport()}
	if w.Client != nil {
		client = *w.Client
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := client.Do(req)
	if err != nil {
		err = fmt.Errorf("webhook at %s: %w", req.URL.Host, bare(err))
		if !sent.Load() { // without a connection nothing has left this machine
			return Undelivered(err)
		}
		return err
	}
	defer resp.Body.Close()
	said, _ := io.ReadAll(io.LimitReader(resp.Body, 512))
	return judge(req.URL.Host, resp, said)
}

// setHeaders gives the request its headers, the signature last.
func (w Webhook) setHeaders(req *http.Request, e work.Effect) {
	for name, values := range w.Header {
		req.Header[name] = append([]string(nil), values...)
	}
	if req.Header.Get("Content-Type") == "" {
		kind := "application/octet-stream"
		if json.Valid(e.Body) {
			kind = "application/json"
		}
		req.Header.Set("Content-Type", kind)
	}
	now := time.Now
	if w.Now != nil {
		now = w.Now
	}
	req.Header.Set(HeaderKey, e.EffectID.String())
	req.Header.Set(HeaderTime, strconv.FormatInt(now().Unix(), 10))
	req.Header.Set(HeaderItem, string(e.Item))
	req.Header.Set(HeaderEffect, escape(e.Name))
	req.Header.Set(HeaderQueue, escape(e.Queue))
	req.Header.Set(HeaderToken, strconv.FormatInt(int64(e.Token), 10))
	req.Header.Set(HeaderAttempt, strconv.Itoa(e.Attempts))
	signature := ""
	for _, secret := range w.Secrets {
		if signature != "" {
			signature += ", "
		}
		signature += Sign(secret, w.URL, req.Header, e.Body)
	}
	if signature != "" {
		req.Header.Set(HeaderSignature, signature)
	}
}

// judge turns the receiver's answer into an outcome. The ledger keeps its
// error, so it names only the receiver's host: at many services the path or the
// query is the secret.
func judge(host string, resp *http.Response, said []byte) error {
	if resp.StatusCode/100 == 2 {
		return nil
	}
	err := fmt.Errorf("webhook at %s: %s: %s", host, resp.Status, bytes.TrimSpace(said))
	switch code := resp.StatusCode; {
	case code == http.StatusRequestTimeout, code == http.StatusTooEarly,
		code == http.StatusTooManyRequests, code == http.StatusServiceUnavailable:
		return Busy(err, retryAfter(resp.Header))
	case code/100 == 3, code/100 == 4:
		return Refused(err)
	}
	return err
}

// retryAfter is how long a receiver asks to wait, in seconds or until a date by
// its own clock. It is 0 if it does not ask.
func retryAfter(h http.Header) time.Duration {
	const most = 24 * time.Hour
	value := h.Get("Retry-After")
	if seconds, err := strconv.Atoi(value); err == nil {
		return time.Duration(min(max(seconds, 0), int(most/time.Second))) * time.Second
	}
	until, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	return min(max(until.Sub(now), 0), most)
}

// transport is the default transport with more idle connections. Go's own keeps
// two for each receiver, so that most deliveries would begin with a handshake.
var transport = sync.OnceValue(func() http.RoundTripper {
	usual, ok := http.DefaultTransport.(*http.Transport)
	if !ok { // somebody has replaced it
		return http.DefaultTransport
	}
	own := usual.Clone()
	own.MaxIdleConns, own.MaxIdleConnsPerHost = 1024, 256
	return own
})
