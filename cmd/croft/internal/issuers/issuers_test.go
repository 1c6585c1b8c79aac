package issuers

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/croft-dev/croft/server/access"
	"github.com/croft-dev/croft/store"
)

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// signer signs tokens.
type signer struct {
	kid, alg string
	private  crypto.Signer
}

func newSigner(kid string) signer {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	return signer{kid, "EdDSA", private}
}

// jwk is the public key as an issuer publishes it.
func (s signer) jwk() map[string]any {
	k := map[string]any{"kid": s.kid, "alg": s.alg, "use": "sig"}
	switch public := s.private.Public().(type) {
	case ed25519.PublicKey:
		k["kty"], k["crv"], k["x"] = "OKP", "Ed25519", encode(public)
	case *rsa.PublicKey:
		k["kty"], k["n"], k["e"] = "RSA", encode(public.N.Bytes()), encode(big.NewInt(int64(public.E)).Bytes())
	}
	return k
}

type claims = map[string]any

// token makes a signed token. header adds to its header.
func (s signer) token(c claims, header claims) string {
	head := claims{"alg": s.alg, "kid": s.kid, "typ": "JWT"}
	for name, value := range header {
		head[name] = value
	}
	h, _ := json.Marshal(head)
	p, _ := json.Marshal(c)
	text := encode(h) + "." + encode(p)
	var signature []byte
	var err error
	if s.alg == "RS256" {
		sum := sha256.Sum256([]byte(text))
		signature, err = s.private.Sign(rand.Reader, sum[:], crypto.SHA256)
	} else {
		signature, err = s.private.Sign(nil, []byte(text), crypto.Hash(0))
	}
	if err != nil {
		panic(err)
	}
	return text + "." + encode(signature)
}

// local is an issuer on a loopback port.
type local struct {
	*httptest.Server
	requests atomic.Int64 // for keys

	mu     sync.Mutex
	keys   []signer
	broken http.HandlerFunc // answers instead, if it is set
}

func newLocal(t *testing.T, keys ...signer) *local {
	l := &local{keys: keys}
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.mu.Lock()
		defer l.mu.Unlock()
		var answer any
		switch r.URL.Path {
		case "/.well-known/openid-configuration":
			answer = claims{"issuer": l.URL, "jwks_uri": l.URL + "/keys", "id_token_signing_alg_values_supported": []string{"none", "HS256", "RS256"}}
		case "/keys":
			l.requests.Add(1)
			if l.broken != nil {
				l.broken(w, r)
				return
			}
			var all []any
			for _, k := range l.keys {
				all = append(all, k.jwk())
			}
			answer = claims{"keys": all}
		default:
			t.Errorf("the issuer was asked for %s", r.URL)
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(l.Close)
	return l
}

func (l *local) set(broken http.HandlerFunc, keys ...signer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken, l.keys = broken, keys
}

// good is what a token for robot says.
func (l *local) good() claims {
	return claims{"iss": l.URL, "aud": "croft", "sub": "repo:acme/app", "exp": time.Now().Add(time.Hour).Unix()}
}

// guarded is a policy with a verifier, and a way to move its clock.
type guarded struct {
	*access.Policy
	later  atomic.Int64
	failed atomic.Int64
}

func guard(t *testing.T, text string) *guarded {
	t.Helper()
	p, err := access.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	g := &guarded{}
	v := New(p.Issuers(), func(err error) {
		g.failed.Add(1)
		if !strings.Contains(err.Error(), "http://127.0.0.1") {
			t.Errorf("the operator is told %v, without the issuer", err)
		}
	})
	for _, i := range v.issuers {
		i.client.Transport.(*gate).now = func() time.Time { return time.Now().Add(time.Duration(g.later.Load())) }
	}
	g.Policy = p.With(v)
	return g
}

func (g *guarded) name(t *testing.T, token string) (string, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://croft.example/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	id, err := g.Identify(r)
	return id.Name, err
}

func policyFor(l *local) string {
	return fmt.Sprintf(`
token ann sha256:%x
oidc robot %[2]s croft sub repo:acme/app
oidc crew  %[2]s croft groups  crew
oidc other %[2]s elsewhere sub repo:acme/app
* may read on a/
`, sha256.Sum256([]byte("anns-token")), l.URL)
}

// TestAnIssuersTokenNamesItsBearer by a claim, or by one of a list. Tokens of
// the policy's own count as before.
func TestAnIssuersTokenNamesItsBearer(t *testing.T) {
	t.Parallel()
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	one, two := newSigner("one"), signer{"two", "RS256", private}
	l := newLocal(t, one, two)
	p := guard(t, policyFor(l))
	crew := l.good()
	crew["sub"], crew["groups"] = "somebody", []string{"staff", "crew"}
	several := l.good()
	several["aud"] = []string{"else", "croft"}
	elsewhere := l.good()
	elsewhere["aud"] = "elsewhere"
	for what, c := range map[string]struct{ token, want string }{
		"a claim":                 {one.token(l.good(), nil), "robot"},
		"signed with RSA":         {two.token(l.good(), nil), "robot"},
		"one of a list":           {one.token(crew, nil), "crew"},
		"one of several audience": {one.token(several, nil), "robot"},
		"another audience's name": {one.token(elsewhere, nil), "other"},
		"the policy's own token":  {"anns-token", "ann"},
	} {
		if name, err := p.name(t, c.token); name != c.want || err != nil {
			t.Errorf("%s: %q, %v; want %q", what, name, err, c.want)
		}
	}
	if l.requests.Load() != 1 {
		t.Errorf("the keys were read %d times", l.requests.Load())
	}
}

// TestABadTokenNamesNobody, and nobody that it names is asked for anything.
func TestABadTokenNamesNobody(t *testing.T) {
	t.Parallel()
	key, stranger := newSigner("one"), newSigner("one")
	l, other := newLocal(t, key), newLocal(t, stranger)
	var asked atomic.Int64
	trap := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_ = json.NewEncoder(w).Encode(claims{"keys": []any{stranger.jwk()}, "issuer": l.URL})
	}))
	defer trap.Close()
	p := guard(t, policyFor(l))
	with := func(change func(claims)) string {
		c := l.good()
		change(c)
		return key.token(c, nil)
	}
	unsigned := func(header string) string {
		c, _ := json.Marshal(l.good())
		return encode([]byte(header)) + "." + encode(c) + "."
	}
	good := key.token(l.good(), nil)
	parts := strings.Split(good, ".")
	altered, _ := json.Marshal(claims{"iss": l.URL, "aud": "croft", "sub": "repo:acme/app", "exp": 1 << 40})
	mac := hmac.New(sha256.New, key.private.Public().(ed25519.PublicKey))
	symmetric := encode([]byte(`{"alg":"HS256","kid":"one"}`)) + "." + parts[1]
	mac.Write([]byte(symmetric))
	for what, token := range map[string]string{
		"another audience":           with(func(c claims) { c["aud"] = "somebody-else" }),
		"no audience":                with(func(c claims) { delete(c, "aud") }),
		"expired":                    with(func(c claims) { c["exp"] = time.Now().Add(-time.Minute).Unix() }),
		"without an end":             with(func(c claims) { delete(c, "exp") }),
		"not yet good":               with(func(c claims) { c["nbf"] = time.Now().Add(time.Hour).Unix() }),
		"another subject":            with(func(c claims) { c["sub"] = "repo:acme/other" }),
		"a subject with more":        with(func(c claims) { c["sub"] = "repo:acme/app:ref:refs/heads/main" }),
		"a subject of another kind":  with(func(c claims) { c["sub"] = claims{"repo:acme/app": 1} }),
		"an issuer not in the rules": with(func(c claims) { c["iss"] = other.URL }),
		"a trap for an issuer":       with(func(c claims) { c["iss"] = trap.URL }),
		"an issuer with a slash":     with(func(c claims) { c["iss"] = l.URL + "/" }),
		"no issuer":                  with(func(c claims) { delete(c, "iss") }),
		"signed by another issuer":   stranger.token(l.good(), nil),
		"signed by an unknown key":   newSigner("new").token(l.good(), nil),
		"a key without a name":       newSigner("").token(l.good(), nil),
		"its own key in the header":  stranger.token(l.good(), claims{"jwk": stranger.jwk()}),
		"keys elsewhere":             stranger.token(l.good(), claims{"jku": trap.URL, "x5u": trap.URL, "kid": trap.URL}),
		"claims elsewhere": key.token(claims{
			"iss": l.URL, "aud": "croft", "exp": time.Now().Add(time.Hour).Unix(), "_claim_names": claims{"sub": "src", "groups": "src"},
			"_claim_sources": claims{"src": claims{"endpoint": trap.URL}},
		}, nil),
		"without a signature":        unsigned(`{"alg":"none"}`),
		"alg None":                   unsigned(`{"alg":"None","kid":"one"}`),
		"no alg":                     unsigned(`{"kid":"one"}`),
		"an empty signature":         parts[0] + "." + parts[1] + ".",
		"altered":                    parts[0] + "." + encode(altered) + "." + parts[2],
		"the public key as a secret": symmetric + "." + encode(mac.Sum(nil)),
		"critical headers":           key.token(l.good(), claims{"crit": []string{"exp"}}),
		"too long":                   with(func(c claims) { c["more"] = strings.Repeat("x", 20<<10) }),
		"in JSON":                    `{"payload":"` + parts[1] + `","protected":"` + parts[0] + `","signature":"` + parts[2] + `"}`,
		"five parts":                 good + ".a.b",
		"nothing":                    "..",
	} {
		if name, err := p.name(t, token); name != "" || err == nil {
			t.Errorf("%s: %q, %v", what, name, err)
		} else if strings.Contains(err.Error(), "acme") {
			t.Errorf("%s: the client is told %v", what, err)
		}
	}
	if name, err := p.name(t, good); name != "robot" || err != nil {
		t.Errorf("a good token after them: %q, %v", name, err)
	}
	if asked.Load() != 0 || other.requests.Load() != 0 {
		t.Errorf("%d requests to what tokens name, %d to another issuer", asked.Load(), other.requests.Load())
	}
}

// TestBadTokensDoNotFloodTheIssuer: it is asked for keys once in a while. A new
// key of the issuer counts after that.
func TestBadTokensDoNotFloodTheIssuer(t *testing.T) {
	t.Parallel()
	key, next := newSigner("one"), newSigner("two")
	l := newLocal(t, key)
	p := guard(t, policyFor(l))
	for n := range 50 {
		if name, err := p.name(t, newSigner(fmt.Sprint(n)).token(l.good(), nil)); name != "" || err == nil {
			t.Fatalf("%q, %v", name, err)
		}
	}
	if got := l.requests.Load(); got != 1 {
		t.Errorf("the issuer was asked %d times", got)
	}
	l.set(nil, next)
	if name, err := p.name(t, next.token(l.good(), nil)); name != "" || !errors.Is(err, store.ErrUnknown) {
		t.Errorf("a new key, a moment later: %q, %v; want it unknown", name, err)
	}
	p.later.Store(int64(pause))
	if name, err := p.name(t, next.token(l.good(), nil)); name != "robot" || err != nil {
		t.Errorf("a new key, later: %q, %v", name, err)
	}
	p.later.Store(int64(2 * pause))
	if name, err := p.name(t, key.token(l.good(), nil)); name != "" || err == nil || errors.Is(err, store.ErrUnknown) {
		t.Errorf("a key that the issuer has withdrawn: %q, %v", name, err)
	}
}

// TestAnIssuerThatFailsLeavesItUnknown: the server cannot tell the client's
// name, and the client asks again. Known keys still count.
func TestAnIssuerThatFailsLeavesItUnknown(t *testing.T) {
	t.Parallel()
	key, next := newSigner("one"), newSigner("two")
	l := newLocal(t, key)
	for what, broken := range map[string]http.HandlerFunc{
		"an error": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, l.URL+"/elsewhere", http.StatusFound)
		},
		"no JSON": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") },
		"no end": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"keys":[],"more":"`)
			for range 2 * maxAnswer >> 10 {
				if _, err := fmt.Fprint(w, strings.Repeat("x", 1<<10)); err != nil {
					return
				}
			}
			fmt.Fprint(w, `"}`)
		},
		"a hangup": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		l.set(nil, key)
		p := guard(t, policyFor(l))
		if name, err := p.name(t, key.token(l.good(), nil)); name != "robot" || err != nil {
			t.Fatalf("%q, %v", name, err)
		}
		l.set(broken)
		p.later.Store(int64(pause))
		name, err := p.name(t, next.token(l.good(), nil))
		// The key set may still be putting away the keys from before the fault.
		// A question at that moment gets those keys, and asks nobody.
		for begun := time.Now(); !errors.Is(err, store.ErrUnknown) && time.Since(begun) < time.Minute; {
			time.Sleep(time.Millisecond)
			name, err = p.name(t, next.token(l.good(), nil))
		}
		if name != "" || !errors.Is(err, store.ErrUnknown) || strings.Contains(err.Error(), "127.0.0.1") {
			t.Errorf("%s, for a new key: %q, %v; want it unknown, and no address", what, name, err)
		}
		if p.failed.Load() != 1 {
			t.Errorf("%s: the operator is told %d times", what, p.failed.Load())
		}
		if name, err := p.name(t, key.token(l.good(), nil)); name != "robot" || err != nil {
			t.Errorf("%s, for a known key: %q, %v", what, name, err)
		}
	}
	l.Close()
	p := guard(t, policyFor(l))
	if name, err := p.name(t, key.token(l.good(), nil)); name != "" || !errors.Is(err, store.ErrUnknown) {
		t.Errorf("an issuer that is not there: %q, %v", name, err)
	}
}

// TestAnIssuerThatHangsHoldsNobodyUp for longer than one request: all who wait
// share it, a client that leaves waits no longer, and those who come after it
// learn at once that the keys could not be had. Anybody can name an issuer in a
// token, and a call that waits takes one of the server's places.
func TestAnIssuerThatHangsHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	key := newSigner("one")
	for _, hangs := range []string{"/.well-known/openid-configuration", "/keys"} {
		var asked atomic.Int64
		arrived, release := make(chan struct{}, 9), make(chan struct{})
		var l *httptest.Server
		l = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == hangs {
				asked.Add(1)
				arrived <- struct{}{}
				<-release
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			_ = json.NewEncoder(w).Encode(claims{"issuer": l.URL, "jwks_uri": l.URL + "/keys"})
		}))
		p := guard(t, fmt.Sprintf("oidc robot %s croft sub x\n* may read on a/\n", l.URL))
		token := key.token(claims{"iss": l.URL, "aud": "croft", "sub": "x", "exp": time.Now().Add(time.Hour).Unix()}, nil)
		ask := func(ctx context.Context) error {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://croft.example/", nil)
			if err != nil {
				return err
			}
			r.Header.Set("Authorization", "Bearer "+token)
			_, err = p.Identify(r)
			return err
		}
		answered := make(chan error, 4)
		for range cap(answered) {
			go func() { answered <- ask(t.Context()) }()
		}
		<-arrived
		gone, leave := context.WithCancel(t.Context())
		leave()
		if err := ask(gone); !errors.Is(err, store.ErrUnknown) || p.failed.Load() != 0 {
			t.Errorf("%s: a client that has left: %v, told %d times", hangs, err, p.failed.Load())
		}
		p.later.Store(int64(pause)) // the request took that long
		close(release)
		for range cap(answered) {
			if err := <-answered; !errors.Is(err, store.ErrUnknown) {
				t.Errorf("%s: %v", hangs, err)
			}
		}
		if err := ask(t.Context()); !errors.Is(err, store.ErrUnknown) {
			t.Errorf("%s, once it has ended: %v", hangs, err)
		}
		if asked.Load() != 1 || p.failed.Load() != 1 {
			t.Errorf("%s: asked %d times, told %d times", hangs, asked.Load(), p.failed.Load())
		}
		l.Close()
	}
}
