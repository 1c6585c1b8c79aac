package testenv

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Call makes a client call the TLS server at an address, host:port, and returns
// the client's error. It closes the client.
type Call func(ctx context.Context, addr string) error

// Impostors checks that clients say nothing to a TLS server that cannot prove
// its name. Each call has a name, for messages. Every call goes to three
// servers:
//
//   - One has the right certificate. It must receive something. This shows that
//     the client trusts the test's authority, and that servers count.
//   - One has a certificate of another authority. It must receive nothing.
//   - One has a certificate for another name. It must receive nothing.
//
// The last two must also hear from the client that it refuses the handshake.
// This shows that the client has seen the certificate.
//
// The clients trust the system's authorities, which a Go process reads once. So
// the calls are made in a child process: it runs the same test again, with
// SSL_CERT_FILE naming the test's authority.
func Impostors(t *testing.T, calls map[string]Call) {
	t.Helper()
	if runtime.GOOS == "darwin" || runtime.GOOS == "windows" {
		Missing(t, "Go asks this system whom to trust, and not SSL_CERT_FILE")
	}
	const child = "CROFT_TEST_IMPOSTORS"
	if os.Getenv(child) == "" {
		cmd := exec.CommandContext(
			t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.short",
			"-test.timeout=10m",
		)
		cmd.Env = append(os.Environ(), child+"=1")
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
			t.Errorf("in a process that trusts the test's authority: %v\n%s", err, out)
		}
		return
	}
	trusted, other := newAuthority(t), newAuthority(t)
	trusted.trust(t)
	for name, call := range calls {
		right := startTLS(t, trusted.issue(t, "127.0.0.1"))
		if err := right.call(t, call); right.received.Load() == 0 {
			t.Errorf("%s: the right server received nothing: %v", name, err)
		}
		for what, certificate := range map[string]tls.Certificate{
			"of another authority": other.issue(t, "127.0.0.1"),
			"for another name":     trusted.issue(t, "elsewhere.example"),
		} {
			impostor := startTLS(t, certificate)
			err := impostor.call(t, call)
			if refused, received := impostor.refused.Load(), impostor.received.Load(); err == nil ||
				refused == 0 || received != 0 {
				t.Errorf("%s, a certificate %s: the client said %v; the server was refused %d times and "+
					"received %d bytes",
					name, what, err, refused, received)
			}
		}
	}
}

// authority issues certificates. Only the test trusts it.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(tb testing.TB) *authority {
	tb.Helper()
	a := &authority{key: newKey(tb)}
	a.certificate = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority of a test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.certificate.Raw = a.sign(tb, a.certificate, a.key)
	return a
}

// issue makes a certificate for a server's name or IP address.
func (a *authority) issue(tb testing.TB, name string) tls.Certificate {
	tb.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "server of a test"},
		NotBefore: a.certificate.NotBefore, NotAfter: a.certificate.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if ip := net.ParseIP(name); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{name}
	}
	key := newKey(tb)
	return tls.Certificate{Certificate: [][]byte{a.sign(tb, template, key)}, PrivateKey: key}
}

// trust makes this process trust the authority, and no other.
func (a *authority) trust(tb testing.TB) {
	tb.Helper()
	folder := tb.TempDir()
	file := filepath.Join(folder, "authority.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw})
	if err := os.WriteFile(file, text, 0o600); err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	for name, value := range map[string]string{"SSL_CERT_FILE": file, "SSL_CERT_DIR": folder} {
		if err := os.Setenv(name, value); err != nil { //nolint:usetesting // parallel tests call it
			tb.Fatalf("testenv: %v", err)
		}
	}
}

func (a *authority) sign(tb testing.TB, template *x509.Certificate, key *ecdsa.PrivateKey) []byte {
	tb.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &key.PublicKey, a.key)
	if err != nil {
		tb.Fatalf("testenv: signing a certificate: %v", err)
	}
	return der
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatalf("testenv: making a key: %v", err)
	}
	return key
}

// tlsServer counts the bytes that clients send. It never answers.
type tlsServer struct {
	listener net.Listener
	config   *tls.Config
	received atomic.Int64   // bytes, without those of handshakes
	refused  atomic.Int64   // handshakes that a client ended with an alert
	open     sync.WaitGroup // the loop that accepts, and connections
}

func startTLS(tb testing.TB, certificate tls.Certificate) *tlsServer {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	s := &tlsServer{listener: l, config: &tls.Config{
		Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12,
		NextProtos: []string{"http/1.1", "h2"}, // gRPC clients refuse servers without h2
	}}
	tb.Cleanup(func() { _ = l.Close() })
	s.open.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.open.Go(func() { s.serve(conn) })
		}
	})
	return s
}

// call lets a client call the server, and waits until all connections are over.
// On a busy machine a client may give up before the handshake is decided. Then
// it calls again.
func (s *tlsServer) call(tb testing.TB, call Call) error {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), Patience)
	defer cancel()
	err := ctx.Err()
	for ctx.Err() == nil && s.received.Load() == 0 && s.refused.Load() == 0 {
		err = call(ctx, s.listener.Addr().String())
	}
	_ = s.listener.Close()
	s.open.Wait()
	return err
}

// serve counts the bytes that the client sends in plain text, or after the
// handshake. It hangs up after the first of them.
func (s *tlsServer) serve(conn net.Conn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(Patience))
	plain := &peeked{Conn: conn, r: bufio.NewReader(conn)}
	first, err := plain.r.Peek(1)
	if err == nil && first[0] == 0 && plain.acceptTLS() {
		first, err = plain.r.Peek(1)
	}
	const handshake = 22 // the type of a TLS record
	if err != nil {
		return // the client said nothing
	}
	if first[0] != handshake {
		s.received.Add(int64(plain.r.Buffered()))
		return
	}
	secure := tls.Server(plain, s.config)
	var failed *net.OpError
	if err := secure.Handshake(); errors.As(err, &failed) && failed.Op == "remote error" {
		s.refused.Add(1)
	}
	n, _ := secure.Read(make([]byte, 1024))
	s.received.Add(int64(n))
}

// peeked is a connection whose first bytes have been read ahead.
type peeked struct {
	net.Conn
	r *bufio.Reader
}

func (p *peeked) Read(b []byte) (int, error) { return p.r.Read(b) }

// acceptTLS answers a PostgreSQL client, which asks in plain text whether the
// server speaks TLS. It reports whether the client has asked.
func (p *peeked) acceptTLS() bool {
	const question = "\x00\x00\x00\x08\x04\xd2\x16\x2f"
	got, err := p.r.Peek(len(question))
	if err != nil || string(got) != question {
		return false
	}
	_, _ = p.r.Discard(len(question))
	_, err = io.WriteString(p, "S")
	return err == nil
}
