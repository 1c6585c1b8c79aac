package access_test

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/server"
	"github.com/croft-dev/croft/server/access"
	"github.com/croft-dev/croft/store"
)

func hash(token string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(token))) }

var policy = `
# comments and empty lines count for nothing
token ann ` + hash("anns-token") + `
token opal ` + hash("opals-token") + `
certificate builder dns:builder.example
certificate mailer  email:mail@example.org
certificate spiffe  uri:spiffe://example.org/job
certificate host    ip:192.0.2.1

ann may acquire, work on reports/
ann may read on one key
opal may operate on *
builder may acquire on build/nightly
* may read on public/
`

func parse(t *testing.T, text string) *access.Policy {
	t.Helper()
	p, err := access.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestOnlyWhatARuleAllowsIsAllowed.
func TestOnlyWhatARuleAllowsIsAllowed(t *testing.T) {
	p := parse(t, policy)
	for _, c := range []struct {
		name string
		verb server.Verb
		key  string
		want bool
	}{
		{"ann", server.Acquire, "reports/daily", true},
		{"ann", server.Work, "reports/daily", true},
		{"ann", server.Read, "reports/daily", true}, // each verb includes it
		{"ann", server.Operate, "reports/daily", false},
		{"ann", server.Acquire, "reports", false},
		{"ann", server.Acquire, "reports2/daily", false},
		{"ann", server.Read, "one key", true},
		{"ann", server.Acquire, "one key", false},
		{"ann", server.Read, "one key/below", false},
		{"ann", server.Operate, "", false},
		{"opal", server.Operate, "reports/daily", true},
		{"opal", server.Operate, "", true},
		{"opal", server.Acquire, "reports/daily", false},
		{"builder", server.Acquire, "build/nightly", true},
		{"builder", server.Acquire, "build/nightly/x", false},
		{"builder", server.Read, "public/x", true},
		{"*", server.Read, "reports/daily", false},
		{"", server.Read, "public/x", false},
	} {
		if got := p.May(server.Identity{Name: c.name}, c.verb, c.key); got != c.want {
			t.Errorf("%s may %s on %q: %t, want %t", c.name, c.verb, c.key, got, c.want)
		}
		if d := p.Explain(c.name, c.verb, c.key); d.Allowed != c.want || d.Allowed != (d.Line > 0 && d.Rule != "") {
			t.Errorf("%s may %s on %q is explained as %+v", c.name, c.verb, c.key, d)
		}
	}
	if d := p.Explain("ann", server.Work, "reports/x"); d.Line != 10 || d.Rule != "ann may acquire, work on reports/" {
		t.Errorf("%+v", d)
	}
	if d := p.Explain("nobody", server.Read, "public/x"); d.Known || d.Allowed {
		t.Errorf("a name that nobody has: %+v", d)
	}
}

// TestATokenNamesItsOwner, and nothing else does.
func TestATokenNamesItsOwner(t *testing.T) {
	p := parse(t, policy)
	for what, c := range map[string]struct {
		headers []string
		want    string
	}{
		"ann's":              {[]string{"Bearer anns-token"}, "ann"},
		"in other letters":   {[]string{"bearer opals-token"}, "opal"},
		"a wrong token":      {[]string{"Bearer anns-tokem"}, ""},
		"an empty token":     {[]string{"Bearer "}, ""},
		"a hash for a token": {[]string{"Bearer " + hash("anns-token")}, ""},
		"another scheme":     {[]string{"Basic anns-token"}, ""},
		"two of them":        {[]string{"Bearer anns-token", "Bearer opals-token"}, ""},
		"none":               {nil, ""},
	} {
		id, err := p.Identify(&http.Request{Header: http.Header{"Authorization": c.headers}})
		if id.Name != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %q, %v; want %q", what, id.Name, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "anns") {
			t.Errorf("%s: the error tells the token: %v", what, err)
		}
	}
}

// TestAVerifiedCertificateNamesItsOwner by its alternative names. A certificate
// that was not verified names nobody.
func TestAVerifiedCertificateNamesItsOwner(t *testing.T) {
	p := parse(t, policy)
	uri, _ := url.Parse("spiffe://example.org/job")
	for want, cert := range map[string]*x509.Certificate{
		"builder": {DNSNames: []string{"other.example", "Builder.example"}},
		"mailer":  {EmailAddresses: []string{"mail@example.org"}},
		"spiffe":  {URIs: []*url.URL{uri}},
		"host":    {IPAddresses: []net.IP{net.ParseIP("192.0.2.1")}},
		"":        {DNSNames: []string{"builder.example.org"}},
	} {
		state := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}
		if id, err := p.Identify(&http.Request{TLS: state}); err == nil {
			t.Errorf("a certificate of %q that was not verified names %q", want, id.Name)
		}
		state.VerifiedChains = [][]*x509.Certificate{{cert}}
		if id, err := p.Identify(&http.Request{TLS: state}); id.Name != want || (err == nil) != (want != "") {
			t.Errorf("%q, %v; want %q", id.Name, err, want)
		}
		wrong := http.Header{"Authorization": {"Bearer wrong"}}
		if id, err := p.Identify(&http.Request{TLS: state, Header: wrong}); err == nil {
			t.Errorf("a wrong token beside a certificate names %q", id.Name)
		}
	}
}

// TestAWrongPolicyIsRefusedWithItsLine.
func TestAWrongPolicyIsRefusedWithItsLine(t *testing.T) {
	ann := "token ann " + hash("x") + "\n"
	for text, want := range map[string]string{
		"allow ann":                                                  "line 1",
		ann + "token bob " + hash("x"):                               "listed twice",
		"token ann anns-token":                                       "sha256",
		"token ann sha256:abc":                                       "sha256",
		"token * " + hash("x"):                                       "no name",
		ann + "ann may read on a//b":                                 "line 2",
		ann + "ann may read on /":                                    "line 2",
		ann + "ann may read":                                         "on which keys",
		ann + "ann may read on":                                      "on which keys",
		ann + "ann may read acquire on a/":                           "no verb",
		ann + "ann may everything on a/":                             "no verb",
		ann + "ann may  on a/":                                       "no verb",
		ann + "bob may read on a/":                                   "named bob",
		"certificate a name:x":                                       "alternative name",
		"certificate a ip:host":                                      "IP address",
		"certificate a dns:x\ncertificate b dns:x":                   "listed twice",
		"oidc robot https://issuer.example croft sub":                "oidc NAME ISSUER",
		"oidc * https://issuer.example croft sub x":                  "no name",
		"oidc robot http://issuer.example croft sub x":               "no issuer",
		"oidc robot issuer.example croft sub x":                      "no issuer",
		"oidc robot https://u@issuer.example croft sub x":            "no issuer",
		"oidc robot https://issuer.example/?x croft sub x":           "no issuer",
		strings.Repeat("oidc r https://issuer.example c sub x\n", 2): "listed twice",
		"# \xff": "UTF-8",
		strings.Repeat("#\n", access.MaxSize/2+1): "at most",
	} {
		if _, err := access.Parse([]byte(text)); !errors.Is(err, fence.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want invalid and %q", text, err, want)
		}
	}
	if p := parse(t, "token may-bot "+hash("x")+"\nmay-bot may read on a/\n"); !p.May(server.Identity{Name: "may-bot"}, server.Read, "a/b") {
		t.Error("a name with may in it is not read")
	}
}

// claims verifies tokens by a list. Without one it is away.
type claims map[string]map[string]any

func (c claims) Verify(_ context.Context, issuer, token string) (map[string]any, error) {
	if c == nil {
		return nil, store.Unknown(errors.New("no answer from 10.0.0.7"))
	}
	found, ok := c[token]
	if !ok || found["iss"] != issuer {
		return nil, errors.New("a bad token of acme")
	}
	return found, nil
}

// TestAClaimForTheRightAudienceNamesItsBearer, once a verifier has verified it.
// A verifier that does not know makes it unknown.
func TestAClaimForTheRightAudienceNamesItsBearer(t *testing.T) {
	const issuer = "https://issuer.example/realm"
	p := parse(t, policy+`
oidc robot `+issuer+` croft sub repo:acme/app
oidc crew  `+issuer+` croft groups crew
oidc robot `+issuer+` elsewhere sub repo:acme/app
robot may work on robots/
`)
	if len(p.Issuers()) != 1 || !p.May(server.Identity{Name: "robot"}, server.Work, "robots/a") {
		t.Fatalf("the issuers are %q", p.Issuers())
	}
	payload := func(text string) string { return "e30." + base64.RawURLEncoding.EncodeToString([]byte(text)) + ".sig" }
	good := payload(`{"iss":"` + issuer + `"}`)
	ask := func(p *access.Policy, token string) (server.Identity, error) {
		return p.Identify(&http.Request{Header: http.Header{"Authorization": {"Bearer " + token}}})
	}
	for what, c := range map[string]struct {
		claims map[string]any
		want   string
	}{
		"its claim":           {map[string]any{"aud": "croft", "sub": "repo:acme/app"}, "robot"},
		"one of audiences":    {map[string]any{"aud": []any{"x", "elsewhere"}, "sub": "repo:acme/app"}, "robot"},
		"one of a list":       {map[string]any{"aud": "croft", "groups": []any{"x", "crew"}}, "crew"},
		"another audience":    {map[string]any{"aud": "other", "sub": "repo:acme/app"}, ""},
		"no audience":         {map[string]any{"sub": "repo:acme/app"}, ""},
		"the list elsewhere":  {map[string]any{"aud": "elsewhere", "groups": []any{"crew"}}, ""},
		"another value":       {map[string]any{"aud": "croft", "sub": "repo:acme/app2"}, ""},
		"a value of a kind":   {map[string]any{"aud": "croft", "sub": map[string]any{"repo:acme/app": true}}, ""},
		"a list within lists": {map[string]any{"aud": "croft", "groups": []any{[]any{"crew"}}}, ""},
	} {
		c.claims["iss"], c.claims["exp"] = issuer, float64(1795097746)
		id, err := ask(p.With(claims{good: c.claims}), good)
		if id.Name != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %q, %v; want %q", what, id.Name, err, c.want)
		}
		if err == nil && id.Until.Unix() != 1795097746 {
			t.Errorf("%s: the name counts until %s, want until the token expires", what, id.Until)
		}
	}
	for what, token := range map[string]string{
		"a token that is not good": good + "x", "another issuer's": payload(`{"iss":"https://issuer.example"}`),
		"no issuer": payload(`{}`), "no token": "a.b.c", "too long a one": strings.Repeat("a", 17<<10),
	} {
		if id, err := ask(p.With(claims{}), token); err == nil || errors.Is(err, store.ErrUnknown) || strings.Contains(err.Error(), "acme") {
			t.Errorf("%s: %q, %v", what, id.Name, err)
		}
	}
	if id, err := ask(p, good); err == nil || errors.Is(err, store.ErrUnknown) {
		t.Errorf("without a verifier: %q, %v", id.Name, err)
	}
	if id, err := ask(p.With(claims(nil)), good); !errors.Is(err, store.ErrUnknown) || strings.Contains(err.Error(), "10.0.0.7") {
		t.Errorf("a verifier that is away: %q, %v; want it unknown, and no address", id.Name, err)
	}
	if id, err := ask(p.With(claims(nil)), "anns-token"); id.Name != "ann" || err != nil {
		t.Errorf("ann, while the issuer is away: %q, %v", id.Name, err)
	}
}

// FuzzParse: no file makes Parse panic, and nothing is allowed to nobody.
func FuzzParse(f *testing.F) {
	f.Add(policy)
	f.Add("a may may may on on on")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := access.Parse([]byte(text))
		if err != nil {
			if !errors.Is(err, fence.ErrInvalid) {
				t.Fatalf("%v does not match invalid", err)
			}
			return
		}
		if p.May(server.Identity{}, server.Read, "a/b") {
			t.Fatal("nobody may read")
		}
	})
}
