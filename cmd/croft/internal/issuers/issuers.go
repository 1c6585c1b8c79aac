// Package issuers verifies the tokens of OpenID Connect issuers for croft
// serve. It is an access.Verifier. It is apart from package access, so that
// programs with a server of their own need no client of issuers.
//
// # Which requests are made
//
// The first token that names an issuer of the policy makes the package read the
// issuer's configuration, at the URL of the policy, and the keys that it names.
// A token signed by a key that is not known makes it read the keys again. It
// makes no request to anything that a token names, follows no redirects, and
// asks for a URL at most once in a few seconds, however many bad tokens arrive.
// In between, the tokens of keys that are known still count. An issuer that
// hangs is not asked again as soon as a request has ended. So its clients
// mostly learn at once that their tokens cannot be verified.
//
// # Goroutines
//
// The client of issuers reads keys on a goroutine, for at most the time of a
// request. This package reads the configuration on one, too. Callers share the
// answer, and each stops waiting when its context ends. An issuer's mutex
// guards its fields, and the gate's mutex the times of requests. Neither is
// held during a request.
package issuers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/croft-dev/croft/server/access"
	"github.com/croft-dev/croft/store"
)

const (
	// within bounds one request to an issuer.
	within = 5 * time.Second
	// maxAnswer bounds an answer of an issuer.
	maxAnswer = 1 << 20
	// pause is the least time from the end of a request to the next one for the
	// same URL.
	pause = 5 * time.Second
)

// algorithms are the ways to sign that are accepted. All need a private key.
var algorithms = []string{
	oidc.RS256, oidc.RS384, oidc.RS512, oidc.ES256, oidc.ES384, oidc.ES512,
	oidc.PS256, oidc.PS384, oidc.PS512, oidc.EdDSA,
}

// Verifier verifies tokens. It is safe for concurrent use.
type Verifier struct {
	issuers map[string]*issuer
	now     func() time.Time // for the expiry of tokens; tests move it
	failed  func(error)
}

var _ access.Verifier = (*Verifier)(nil)

// New makes a verifier for these issuers. It sends nothing. failed is told why
// an issuer's keys could not be had.
func New(names []string, failed func(error)) *Verifier {
	v := &Verifier{issuers: map[string]*issuer{}, now: time.Now, failed: failed}
	for _, name := range names {
		v.issuers[name] = &issuer{name: name, client: &http.Client{
			Timeout:       within,
			Transport:     &gate{base: http.DefaultTransport, last: map[string]time.Time{}, now: time.Now},
			CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("the issuer redirects") },
		}}
	}
	return v
}

// Verify implements access.Verifier.
func (v *Verifier) Verify(ctx context.Context, name, token string) (claims map[string]any, err error) {
	i := v.issuers[name]
	if i == nil {
		return nil, fmt.Errorf("the policy does not name the issuer %.80q", name)
	}
	keys, err := i.keySet(ctx)
	if err != nil {
		return nil, v.unknown(ctx, i, err)
	}
	asked := &asked{KeySet: keys}
	verified, err := oidc.NewVerifier(name, asked, &oidc.Config{
		SkipClientIDCheck: true, SupportedSigningAlgs: algorithms, Now: v.now, // the policy checks the audience
	}).Verify(ctx, token)
	if asked.failed != nil {
		return nil, v.unknown(ctx, i, asked.failed)
	}
	if err != nil {
		return nil, err
	}
	err = verified.Claims(&claims)
	return claims, err
}

// unknown tells that an issuer's keys could not be had. Many clients may wait
// for one request, and its failure is told once.
func (v *Verifier) unknown(ctx context.Context, i *issuer, err error) error {
	err = fmt.Errorf("the keys of the issuer %s could not be had: %w", i.name, err)
	if !errors.Is(err, errTooSoon) && ctx.Err() == nil && i.news() {
		v.failed(err)
	}
	return store.Unknown(err)
}

// issuer is an issuer that the policy names.
type issuer struct {
	name   string
	client *http.Client

	mu      sync.Mutex
	keys    oidc.KeySet // nil until the configuration was read
	reading *reading    // of the configuration, if it is under way
	told    time.Time   // when a failure was told last
}

// reading is the result of reading the configuration, once done is closed.
type reading struct {
	done chan struct{}
	keys oidc.KeySet
	err  error
}

// news reports whether no failure was told in the last moments.
func (i *issuer) news() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if now := time.Now(); i.told.IsZero() || now.Sub(i.told) >= pause {
		i.told = now
		return true
	}
	return false
}

// keySet returns the keys of the issuer. If nobody has read the configuration,
// it waits for that until ctx ends.
func (i *issuer) keySet(ctx context.Context) (oidc.KeySet, error) {
	i.mu.Lock()
	if i.keys != nil {
		defer i.mu.Unlock()
		return i.keys, nil
	}
	if i.reading == nil {
		i.reading = &reading{done: make(chan struct{})}
		go i.read(i.reading)
	}
	r := i.reading
	i.mu.Unlock()
	select {
	case <-r.done:
		return r.keys, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (i *issuer) read(r *reading) {
	r.keys, r.err = i.configured()
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys, i.reading = r.keys, nil
	close(r.done)
}

// configured reads the issuer's configuration.
func (i *issuer) configured() (oidc.KeySet, error) {
	// All callers share the configuration, so no caller's context ends this.
	ctx := oidc.ClientContext(context.Background(), i.client)
	provider, err := oidc.NewProvider(ctx, i.name)
	if err != nil {
		return nil, err
	}
	var configuration struct {
		Keys string `json:"jwks_uri"`
	}
	if err := provider.Claims(&configuration); err != nil {
		return nil, err
	}
	if strings.HasPrefix(i.name, "https:") && !strings.HasPrefix(configuration.Keys, "https://") {
		return nil, errors.New("its keys are not behind https")
	}
	return oidc.NewRemoteKeySet(ctx, configuration.Keys), nil
}

// asked is a key set that one token is verified with.
type asked struct {
	oidc.KeySet
	failed error // why the keys could not be had
}

// VerifySignature notes whether the keys could be had. The client of issuers
// wraps that error, and no other.
func (a *asked) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	payload, err := a.KeySet.VerifySignature(ctx, token)
	if err != nil && errors.Unwrap(err) != nil {
		a.failed = err
	}
	return payload, err
}

// gate lets one request for a URL through in a while, and bounds the answer.
type gate struct {
	base http.RoundTripper
	now  func() time.Time // tests move it

	mu   sync.Mutex
	last map[string]time.Time // by URL; only an issuer's configuration names them
}

var errTooSoon = errors.New("it was asked a moment ago")

// RoundTrip implements http.RoundTripper.
func (g *gate) RoundTrip(req *http.Request) (*http.Response, error) {
	url := req.URL.String()
	g.mu.Lock()
	last, again := g.last[url]
	soon := again && g.now().Sub(last) < pause
	g.mu.Unlock()
	if soon {
		return nil, errTooSoon
	}
	g.asked(url)
	resp, err := g.base.RoundTrip(req)
	if err != nil {
		g.asked(url) // a request that hung has used up the pause
		return nil, err
	}
	resp.Body = &answer{io.LimitReader(resp.Body, maxAnswer), resp.Body, func() { g.asked(url) }}
	return resp, nil
}

func (g *gate) asked(url string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last[url] = g.now()
}

// answer is an answer that is being read.
type answer struct {
	io.Reader
	body io.Closer
	over func()
}

// Close notes that the request has ended.
func (a *answer) Close() error {
	a.over()
	return a.body.Close()
}
