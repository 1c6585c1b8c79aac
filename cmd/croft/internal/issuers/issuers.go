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
// In between, the tokens of keys that are known still count.
//
// # Goroutines
//
// The client of issuers reads keys on a goroutine, for at most the time of a
// request. An issuer's mutex guards its key set, and is held while the
// configuration is read. The gate's mutex guards the times of requests.
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
	// pause is the least time between two requests for a URL.
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
	keys, err := i.keySet()
	if err != nil {
		return nil, v.unknown(name, err)
	}
	asked := &asked{KeySet: keys}
	verified, err := oidc.NewVerifier(name, asked, &oidc.Config{
		SkipClientIDCheck: true, SupportedSigningAlgs: algorithms, Now: v.now, // the policy checks the audience
	}).Verify(ctx, token)
	if asked.failed != nil {
		return nil, v.unknown(name, asked.failed)
	}
	if err != nil {
		return nil, err
	}
	err = verified.Claims(&claims)
	return claims, err
}

// unknown tells that an issuer's keys could not be had.
func (v *Verifier) unknown(name string, err error) error {
	err = fmt.Errorf("the keys of the issuer %s could not be had: %w", name, err)
	if !errors.Is(err, errTooSoon) {
		v.failed(err)
	}
	return store.Unknown(err)
}

// issuer is an issuer that the policy names.
type issuer struct {
	name   string
	client *http.Client

	mu   sync.Mutex
	keys oidc.KeySet // nil until the configuration was read
}

// keySet returns the keys of the issuer. It reads the configuration if nobody
// has done so.
func (i *issuer) keySet() (oidc.KeySet, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.keys != nil {
		return i.keys, nil
	}
	// All callers share what is read, so no caller's context ends it.
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
	i.keys = oidc.NewRemoteKeySet(ctx, configuration.Keys)
	return i.keys, nil
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
	now := g.now()
	g.mu.Lock()
	last, again := g.last[req.URL.String()]
	soon := again && now.Sub(last) < pause
	if !soon {
		g.last[req.URL.String()] = now
	}
	g.mu.Unlock()
	if soon {
		return nil, errTooSoon
	}
	resp, err := g.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(resp.Body, maxAnswer), resp.Body}
	return resp, nil
}
