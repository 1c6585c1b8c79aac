package etcd

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// TestURLsThatCannotBeRightAreRefused: the error says what to write instead.
func TestURLsThatCannotBeRightAreRefused(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		"etcd:///prefix", "etcd://h1,,h2/", "etcd://h/?nonsense=1", "etcd://h/?retention=soon", "etcd://h/?retention=-1h", "etcd://h/#key",
		"etcd://h/?retention=", "etcd://h/?retention=1h&retention=2h", "etcd://h:0/", "etcd://h:70000/", "etcd://h1:1:2,h2/", "etcd://h1;h2/", "etcd://:2379/", "etcds://h/?cert=only.pem", "etcds://h/?cacert=nowhere.pem", "etcds://h/?cert=nowhere.pem&key=nowhere.pem",
		"etcd://ann:?hunter2@h", "etcd://ann:1?hunter2@h/",
	} {
		if _, err := store.Open(t.Context(), bad); !errors.Is(err, fence.ErrInvalid) || strings.Contains(err.Error(), "%!") || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want invalid, without the password", bad, err)
		}
	}
	for raw, want := range map[string]string{"h": "[http://h:2379]", "h1,h2:1": "[http://h1:2379 http://h2:1]", "h:": "[http://h:2379]", "[::1]": "[http://[::1]:2379]", "[::1]:1": "[http://[::1]:1]", "::1": "[http://[::1]:2379]"} {
		if got, err := endpoints(raw, false); err != nil || fmt.Sprint(got) != want {
			t.Errorf("%s: %v, %v, want %s", raw, got, err, want)
		}
	}
}

// takeAndRelease takes a lease and gives it back.
func takeAndRelease(ctx context.Context, url string) error {
	st, err := store.Open(ctx, url)
	if err != nil {
		return err
	}
	defer st.Close()
	mine := claim("access/key", "ann")
	if a := one(ctx, st, mine); a.Err != nil {
		return a.Err
	}
	return one(ctx, st, then(tenure.Release, mine)).Err
}

// withUsers makes a cluster ask for users: root, and ann. Her role is for the
// prefix team-a/ and nothing else.
func withUsers(t *testing.T, c *testenv.EtcdCluster) {
	t.Helper()
	client, ctx := dial(t, c), t.Context()
	steps := []func() error{
		func() error { _, err := client.RoleAdd(ctx, "root"); return err },
		func() error { _, err := client.UserAdd(ctx, "root", "secret"); return err },
		func() error { _, err := client.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := client.RoleAdd(ctx, "team"); return err },
		func() error {
			_, err := client.RoleGrantPermission(ctx, "team", "team-a/", clientv3.GetPrefixRangeEnd("team-a/"), clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func() error { _, err := client.UserAdd(ctx, "ann", "hunter2"); return err },
		func() error { _, err := client.UserGrantRole(ctx, "ann", "team"); return err },
		func() error { _, err := client.AuthEnable(ctx); return err },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestUsersKeepToTheirPrefix: users have a password and a role for the store's
// prefix, and nothing else.
func TestUsersKeepToTheirPrefix(t *testing.T) {
	t.Parallel()
	c := testenv.EtcdAlone(t, "unsafe-no-fsync: true")
	ctx := t.Context()
	withUsers(t, c)
	url := func(user, prefix string) string { return "etcd://" + user + c.Addrs()[0] + "/" + prefix }
	allowed, err := guard.Allow(url("root:secret@", "team-a"))
	if err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "an allowed place is entered by its own user", func() error {
		g, err := allowed.Open(ctx, url("ann@", "team-a")+"#report")
		if err != nil {
			return err
		}
		defer g.Close()
		_, err = g.Raise(ctx, stamp(20, 2, 0))
		return err
	})
	// etcd takes long to check a password. On a busy machine a call may time
	// out meanwhile.
	testenv.Eventually(t, "it works within the prefix", func() error { return takeAndRelease(ctx, url("ann:hunter2@", "team-a")) })
	for name, c := range map[string]struct{ url, says string }{
		"another prefix":   {url("ann:hunter2@", "team-b"), "role"},
		"a wrong password": {url("ann:wrong@", "team-a"), "password is wrong"},
		"no user":          {url("", "team-a"), "etcd asks for a user"},
	} {
		testenv.Eventually(t, "it is said what to do about "+name, func() error {
			err := takeAndRelease(ctx, c.url)
			if !errors.Is(err, store.ErrUnknown) || strings.Contains(err.Error(), "hunter2") {
				t.Fatalf("%s: %v, want unknown", name, err)
			}
			if !strings.Contains(err.Error(), c.says) {
				return err
			}
			return nil
		})
	}
}

// certificate writes a self-signed certificate and its key. It is good for
// clients, and for servers at these addresses and names.
func certificate(t *testing.T, addresses []net.IP, names ...string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: addresses, DNSNames: names,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	cert, key = filepath.Join(folder, "cert.pem"), filepath.Join(folder, "key.pem")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "EC PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// TestTLS: the server shows a certificate and asks for one.
func TestTLS(t *testing.T) {
	t.Parallel()
	cert, key := certificate(t, []net.IP{net.IPv4(127, 0, 0, 1)}, "localhost")
	c := testenv.EtcdAlone(t, "unsafe-no-fsync: true", fmt.Sprintf("client-transport-security: {cert-file: %q, key-file: %q}", cert, key))
	good := "etcds://" + c.Addrs()[0] + "/tls?cacert=" + cert + "&cert=" + cert + "&key=" + key
	testenv.Eventually(t, "it works over TLS", func() error { return takeAndRelease(t.Context(), good) })
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if err := takeAndRelease(ctx, "etcds://"+c.Addrs()[0]+"/tls"); !errors.Is(err, store.ErrUnknown) {
		t.Errorf("a server that is not trusted: %v", err)
	}
}

// TestServersMayHaveAnotherName: servername= gives the name in their
// certificates.
func TestServersMayHaveAnotherName(t *testing.T) {
	t.Parallel()
	cert, key := certificate(t, nil, "etcd.example")
	c := testenv.EtcdAlone(t, "unsafe-no-fsync: true", fmt.Sprintf("client-transport-security: {cert-file: %q, key-file: %q}", cert, key))
	trusting := "etcds://" + c.Addrs()[0] + "/?cacert=" + cert
	if err := takeAndRelease(t.Context(), trusting+"&servername=etcd.example"); err != nil {
		t.Errorf("by its name: %v", err)
	}
	for _, other := range []string{trusting, trusting + "&servername=localhost"} {
		expectDialError(t, other, "servername=NAME")
	}
}

// callOnce makes one short call.
func callOnce(t *testing.T, raw string) error {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	p, err := parseURL(u)
	if err != nil {
		t.Fatal(err)
	}
	client, err := p.dial(t.Context())
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = once(t.Context(), time.Second, func(ctx context.Context) (*clientv3.GetResponse, error) { return client.Get(ctx, "key") })
	return err
}

// demandsCertificate runs a server that asks for a client's certificate, and
// does nothing else.
func demandsCertificate(t *testing.T, cert, key string) (addr string) {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAnyClientCert, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_ = conn.(*tls.Conn).HandshakeContext(t.Context())
				_ = conn.Close()
			}()
		}
	}()
	return l.Addr().String()
}

// TestDialErrorsSayWhyAndWhatToDo: etcd's client alone would report only that
// the time is up.
func TestDialErrorsSayWhyAndWhatToDo(t *testing.T) {
	t.Parallel()
	cert, key := certificate(t, []net.IP{net.IPv4(127, 0, 0, 1)})
	secure := testenv.EtcdAlone(t, "unsafe-no-fsync: true", fmt.Sprintf("client-transport-security: {cert-file: %q, key-file: %q}", cert, key)).Addrs()[0]
	plain := testenv.Etcd(t).Addrs()[0]
	const closed = "127.0.0.1:1"
	for name, c := range map[string]struct{ url, says string }{
		"nobody is there":               {"etcd://" + closed, "check the addresses"},
		"nobody to log in with":         {"etcd://ann:hunter2@" + closed, "check the addresses"},
		"a server that is not trusted":  {"etcds://" + secure, "cacert=FILE"},
		"a client without certificate":  {"etcds://" + demandsCertificate(t, cert, key) + "/?cacert=" + cert, "cert=FILE and key=FILE"},
		"no TLS where there should be":  {"etcd://" + secure, "write etcds://"},
		"TLS where there should not be": {"etcds://" + plain, "write etcd://"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expectDialError(t, c.url, c.says)
		})
	}
}

// expectDialError checks that a URL reaches nobody, and that the error names
// the remedy.
func expectDialError(t *testing.T, raw, says string) {
	t.Helper()
	// A call that is given up before its first try knows no reason.
	testenv.Eventually(t, "the reason is told", func() error {
		err := callOnce(t, raw)
		if err == nil || !strings.Contains(err.Error(), "no member can be reached") || !strings.Contains(err.Error(), says) {
			return fmt.Errorf("%s: %w, want what to do: %s", raw, err, says)
		}
		return nil
	})
}

func TestTheDoctorNamesWhatWeakensALease(t *testing.T) {
	t.Parallel()
	levels := func(st *Store) map[string]store.Level {
		t.Helper()
		findings, err := st.Examine(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]store.Level{}
		for _, f := range findings {
			got[f.Check] = f.Level
			if f.Seen == "" || (f.Level != store.OK) != (f.Advice != "") {
				t.Errorf("a finding without what was seen, or with the wrong advice: %+v", f)
			}
		}
		return got
	}
	c := testenv.EtcdThree(t, "unsafe-no-fsync: true")
	st := open(t, dial(t, c), c.Prefix())
	must(t, st, claim("doctor/key", "ann"))
	for check, level := range levels(st) {
		if level != store.OK && check != "access" {
			t.Errorf("a good cluster: %s is %s", check, level)
		}
	}
	for _, m := range c.Members {
		if !m.Leads() {
			m.Kill()
			break
		}
	}
	if got := levels(st); got["members"] != store.Warn || got["leader"] != store.OK {
		t.Errorf("with a member down: %v", got)
	}
	// The member may just be ending.
	testenv.Eventually(t, "the record is damaged", func() error {
		_, err := st.client.Put(t.Context(), st.names.record("doctor/key"), "nonsense")
		return err
	})
	if got := levels(st); got["keys"] != store.Bad {
		t.Errorf("with a damaged record: %v", got)
	}
	expectDamaged(t, st, claim("doctor/key", "bob"))
	last := c.Leader(t)
	for _, m := range c.Members {
		if m != last {
			m.Kill()
		}
	}
	hasty := open(t, st.client, c.Prefix())
	hasty.timeout = requestTimeout // nothing answers, so do not wait long
	if got := levels(hasty); got["members"] != store.Bad || got["agreement"] != store.Bad {
		t.Errorf("with one member of three left: %v", got)
	}
}

// TestTheDoctorSeesMembersThatAdvertiseAWrongAddress: they work, but clients do
// not find them by that address.
func TestTheDoctorSeesMembersThatAdvertiseAWrongAddress(t *testing.T) {
	t.Parallel()
	c := testenv.EtcdAlone(t, "unsafe-no-fsync: true", "advertise-client-urls: http://127.0.0.1:1")
	findings, err := open(t, dial(t, c), c.Prefix()).Examine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range findings {
		switch {
		case f.Check == "members" && (f.Level != store.Warn || !strings.Contains(f.Advice, "advertise")):
			t.Errorf("the doctor says %+v", f)
		case f.Check == "leader" && f.Level != store.OK:
			t.Errorf("the doctor says %+v of a leader that is there", f)
		}
	}
}

// TestTheDoctorSaysThatAUserIsNotAskedFor: a password in the URL keeps nobody
// out of a cluster that checks none.
func TestTheDoctorSaysThatAUserIsNotAskedFor(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	st, err := store.Open(t.Context(), "etcd://ann:hunter2@"+c.Addrs()[0]+"/"+c.Prefix())
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	findings, err := st.(*Store).Examine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range findings {
		if f.Check == "access" && (f.Level != store.Warn || !strings.Contains(f.Advice, "auth enable")) {
			t.Errorf("the doctor says %+v", f)
		}
	}
}

// expectDamaged asks for a key until the answer is that its record is damaged.
// Earlier calls may time out.
func expectDamaged(t *testing.T, st *Store, req tenure.Request) {
	t.Helper()
	testenv.Eventually(t, "it says what is wrong", func() error {
		a := one(t.Context(), st, req)
		if !errors.Is(a.Err, store.ErrUnknown) || errors.Is(a.Err, fence.ErrInvalid) {
			t.Fatalf("a damaged record: %v", a.Err)
		}
		if !errors.Is(a.Err, ErrDamaged) {
			return a.Err
		}
		return nil
	})
}

// TestAFullEtcdSaysSo: its quota is used up, and it accepts no changes.
func TestAFullEtcdSaysSo(t *testing.T) {
	t.Parallel()
	c := testenv.EtcdAlone(t, "unsafe-no-fsync: true", "quota-backend-bytes: 4194304")
	client := dial(t, c)
	st := open(t, client, c.Prefix())
	big, tries := strings.Repeat("x", 1<<20), 0
	testenv.Eventually(t, "etcd is full", func() error {
		tries++
		_, _ = client.Put(t.Context(), fmt.Sprint("big", tries), big)
		if a := one(t.Context(), st, claim(fmt.Sprint("full/", tries), "ann")); a.Err == nil || !strings.Contains(a.Err.Error(), "quota") {
			return fmt.Errorf("a grant: %w", a.Err)
		}
		return nil
	})
	findings, err := st.Examine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range findings {
		if f.Check == "alarms" && f.Level != store.Bad {
			t.Errorf("the doctor says %+v", f)
		}
	}
}
