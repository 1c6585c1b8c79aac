//go:build linux

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// certificates makes an authority, a server's certificate for 127.0.0.1 and a
// client's for builder.example. It returns their folder: ca.pem, server.pem,
// server.key, client.pem, client.key.
func certificates(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name, kind string, der []byte) {
		t.Helper()
		text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var authority *x509.Certificate
	var authorityKey *ecdsa.PrivateKey
	issue := func(name string, c *x509.Certificate) {
		t.Helper()
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		c.SerialNumber, c.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}
		c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
		if authority == nil {
			authority, authorityKey = c, key
		}
		der, err := x509.CreateCertificate(rand.Reader, c, authority, &key.PublicKey, authorityKey)
		if err != nil {
			t.Fatal(err)
		}
		secret, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		write(name+".pem", "CERTIFICATE", der)
		write(name+".key", "PRIVATE KEY", secret)
	}
	issue("ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	issue("server", &x509.Certificate{
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	issue("client", &x509.Certificate{
		DNSNames: []string{"builder.example"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return dir
}

// TestACertificateNamesTheOwner: the server proves its name, the client's
// certificate says who it is, and a client without one gets nothing.
func TestACertificateNamesTheOwner(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	dir := certificates(t)
	policy := filepath.Join(dir, "policy")
	if err := os.WriteFile(policy, []byte("certificate builder dns:builder.example\nbuilder may acquire on build/\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, address := s.serve("secure", "--cert", dir+"/server.pem", "--key", dir+"/server.key", "--client-ca", dir+"/ca.pem", "--policy", policy)
	ask := func(url string) store.Answer {
		t.Helper()
		st, err := store.Open(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		return st.Apply(t.Context(), []tenure.Request{{
			Verb: tenure.Acquire, Key: "build/nightly", Secret: tenure.NewSecret(), Owner: "somebody", TTL: time.Minute,
		}})[0]
	}
	for what, url := range map[string]string{
		"a client without a certificate":        "https://" + address + "/?ca=" + dir + "/ca.pem",
		"a client that does not trust":          "https://" + address + "/?cert=" + dir + "/client.pem&key=" + dir + "/client.key",
		"a certificate that is not for clients": "https://" + address + "/?ca=" + dir + "/ca.pem&cert=" + dir + "/server.pem&key=" + dir + "/server.key",
	} {
		if a := ask(url); !store.IsFault(a.Err) {
			t.Errorf("%s: %v, want a fault", what, a.Err)
		}
	}
	a := ask("https://" + address + "/?ca=" + dir + "/ca.pem&cert=" + dir + "/client.pem&key=" + dir + "/client.key")
	if a.Err != nil || a.Record.Owner != "builder" || a.Record.Terms != 1 {
		t.Errorf("with its certificate: %v, %+v; want builder as the owner", a.Err, a.Record)
	}
}
