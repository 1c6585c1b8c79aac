package access

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/croft-dev/croft/server"
	"github.com/croft-dev/croft/store"
)

// Verifier verifies tokens of OpenID Connect issuers. The program that serves
// brings one along, so that this package needs no client of issuers.
type Verifier interface {
	// Verify returns the claims of a token that the issuer has signed and that
	// has not expired. It need not look at the audience. Its error matches
	// store.ErrUnknown if the issuer's keys could not be had. Any other error
	// says that the token is not good. Verify may ask the issuer, and nobody
	// that the token names.
	Verify(ctx context.Context, issuer, token string) (claims map[string]any, err error)
}

// With returns the policy with a verifier for its issuers. Without one, no
// token of an issuer names anybody.
func (p *Policy) With(v Verifier) *Policy {
	with := *p
	with.verifier = v
	return &with
}

// Issuers returns the issuers that the policy names.
func (p *Policy) Issuers() []string {
	var all []string
	for _, i := range p.issued {
		if !slices.Contains(all, i.issuer) {
			all = append(all, i.issuer)
		}
	}
	return all
}

// issued gives a name to the bearers of an issuer's tokens for an audience, if
// a claim has this value.
type issued struct {
	name, issuer, audience, claim, value string
}

// maxToken is the length of the longest token that is looked at.
const maxToken = 16 << 10

// readIssued reads "oidc NAME ISSUER AUDIENCE CLAIM VALUE".
func (p *Policy) readIssued(words []string) error {
	i := issued{name: words[0], issuer: words[1], audience: words[2], claim: words[3], value: words[4]}
	if err := checkName(i.name); err != nil {
		return err
	}
	u, err := url.Parse(i.issuer)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" ||
		u.Scheme != "https" && !(u.Scheme == "http" && isLoopback(u.Hostname())) {
		return fmt.Errorf("%.80q is no issuer: write its URL as in the iss of its tokens, with https", i.issuer)
	}
	if slices.ContainsFunc(p.issued, func(o issued) bool { o.name = i.name; return o == i }) {
		return errors.New("the same claim is listed twice")
	}
	p.issued = append(p.issued, i)
	return nil
}

// byIssuer finds the name of a token by its claims. Only an issuer that the
// policy names is asked for keys.
func (p *Policy) byIssuer(ctx context.Context, token string) (server.Identity, error) {
	if p.verifier == nil || len(p.issued) == 0 || len(token) > maxToken {
		return server.Identity{}, errToken
	}
	issuer := claimedIssuer(token)
	if !slices.Contains(p.Issuers(), issuer) {
		return server.Identity{}, errToken
	}
	claims, err := p.verifier.Verify(ctx, issuer, token)
	if errors.Is(err, store.ErrUnknown) {
		return server.Identity{}, store.Unknown(errors.New("the keys of the token's issuer could not be had; " +
			"ask again"))
	}
	if err != nil {
		return server.Identity{}, errToken
	}
	for _, i := range p.issued {
		if i.issuer == issuer && has(claims["aud"], i.audience) && has(claims[i.claim], i.value) {
			return server.Identity{Name: i.name, Until: endOf(claims["exp"])}, nil
		}
	}
	return server.Identity{}, errToken
}

// endOf returns when a token expires. JSON's numbers are floats here.
func endOf(claim any) time.Time {
	seconds, ok := claim.(float64)
	if !ok || seconds >= 1<<40 {
		return time.Time{}
	}
	return time.Unix(int64(seconds), 0)
}

// has reports whether a claim is this text, or a list with this text in it.
func has(claim any, value string) bool {
	if list, ok := claim.([]any); ok {
		return slices.ContainsFunc(list, func(one any) bool { return one == value })
	}
	return claim == value
}

// claimedIssuer returns the issuer that a token names. Nothing about it is
// verified: it only says whose keys to try.
func claimedIssuer(token string) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var claims struct {
		Issuer string `json:"iss"`
	}
	if json.Unmarshal(payload, &claims) != nil {
		return ""
	}
	return claims.Issuer
}
