package access

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"errors"
	"net/http"
	"net/netip"
	"strings"

	"github.com/croft-dev/croft/server"
)

// The reasons why the server does not know a client.
var (
	errNobody = errors.New("this server must know who asks: send a bearer token, or a client certificate")
	errToken  = errors.New("no identity has this token; see whether it was renewed")
	errCert   = errors.New("no identity has this client certificate")
)

// Identify finds the name of a bearer token, or else of a client certificate.
// The token is one of the policy's own, or of an issuer. A wrong token is
// refused even if the certificate is right.
func (p *Policy) Identify(r *http.Request) (server.Identity, error) {
	if given := r.Header.Values("Authorization"); len(given) > 0 {
		scheme, value, _ := strings.Cut(given[0], " ")
		if len(given) > 1 || !strings.EqualFold(scheme, "Bearer") {
			return server.Identity{}, errToken
		}
		value = strings.TrimSpace(value)
		if id, err := p.byToken(value); err == nil {
			return id, nil
		}
		return p.byIssuer(r.Context(), value)
	}
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return server.Identity{}, errNobody
	}
	return p.byCertificate(r.TLS.PeerCertificates[0])
}

// byToken compares with every token, however early one matches, so that the
// time it takes tells nothing.
func (p *Policy) byToken(value string) (server.Identity, error) {
	hash := sha256.Sum256([]byte(value))
	found := -1
	for i := range p.tokens {
		if subtle.ConstantTimeCompare(hash[:], p.tokens[i].hash[:]) == 1 {
			found = i
		}
	}
	if found < 0 || value == "" {
		return server.Identity{}, errToken
	}
	return server.Identity{Name: p.tokens[found].name}, nil
}

// byCertificate finds the first certificate of the policy that fits.
func (p *Policy) byCertificate(cert *x509.Certificate) (server.Identity, error) {
	for _, c := range p.certificates {
		if c.fits(cert) {
			return server.Identity{Name: c.name}, nil
		}
	}
	return server.Identity{}, errCert
}

// isLoopback reports whether only this machine can answer at a host.
func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}

func (c certificate) fits(cert *x509.Certificate) bool {
	switch c.kind {
	case "dns":
		for _, name := range cert.DNSNames {
			if strings.EqualFold(name, c.value) {
				return true
			}
		}
	case "email":
		for _, name := range cert.EmailAddresses {
			if name == c.value {
				return true
			}
		}
	case "uri":
		for _, name := range cert.URIs {
			if name.String() == c.value {
				return true
			}
		}
	case "ip":
		for _, ip := range cert.IPAddresses {
			if addr, ok := netip.AddrFromSlice(ip); ok && addr.Unmap().String() == c.value {
				return true
			}
		}
	}
	return false
}
