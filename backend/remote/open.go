package remote

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/fsys"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/work"
)

func init() {
	for _, scheme := range []string{"http", "https"} {
		store.Register(scheme, openURL)
		work.Register(scheme, func(ctx context.Context, u *url.URL) (work.Ledger, error) {
			st, err := openURL(ctx, u)
			if err != nil {
				return nil, err
			}
			return &Ledger{st.(*Store)}, nil
		})
		guard.Register(scheme, openFileURL)
	}
}

// EnvToken names the environment variable with the token, for a URL that names
// no file.
const EnvToken = "CROFT_SERVER_TOKEN"

// Options of a store. The zero value is good.
type Options struct {
	// TokenFile is a file with the bearer token of this client. It is read
	// again now and then, so the token may be renewed. In a URL: token=@FILE.
	// Without it the token is the value of CROFT_SERVER_TOKEN, if there is one.
	TokenFile string
	// CAFile has the certificates of the authorities to trust, in PEM form. The
	// default are those of the system. In a URL: ca=FILE.
	CAFile string
	// CertFile and KeyFile have this client's certificate and its key, in PEM
	// form. In a URL: cert=FILE&key=FILE.
	CertFile, KeyFile string
	// Insecure allows http to other machines. Anybody between this machine and
	// the server can then read the token and the secrets of leases, and use
	// them. In a URL: insecure=true.
	Insecure bool
}

func openURL(_ context.Context, u *url.URL) (store.Store, error) {
	s, err := fromURL(u)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// fromURL makes a store from a URL with options.
func fromURL(u *url.URL) (*Store, error) {
	bad := func(format string, args ...any) (*Store, error) {
		return nil, fmt.Errorf("%w store URL %q: %s",
			fence.ErrInvalid, store.Redact(u.String()), fmt.Sprintf(format, args...))
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return bad("what follows the question mark cannot be read")
	}
	var o Options
	for name, values := range query {
		if len(values) != 1 {
			return bad("the option %q is given twice", name)
		}
		value := values[0]
		switch name {
		case "token":
			file, isFile := strings.CutPrefix(value, "@")
			if !isFile || file == "" {
				return bad("a token does not belong into a URL; write token=@FILE, or set %s", EnvToken)
			}
			o.TokenFile = file
		case "ca":
			o.CAFile = value
		case "cert":
			o.CertFile = value
		case "key":
			o.KeyFile = value
		case "insecure":
			if value != "true" {
				return bad("insecure=%q: write insecure=true, or leave it out", value)
			}
			o.Insecure = true
		default:
			return bad("unknown option %q; known are token, ca, cert, key and insecure", name)
		}
	}
	if u.Fragment != "" {
		return bad("what follows # names a guarded resource, a store has none")
	}
	base := *u
	base.RawQuery = ""
	return Open(base.String(), &o)
}

// Open makes a store of the server at a URL like "https://croft.example/". It
// sends nothing. Its error matches fence.ErrInvalid if the URL is wrong. o may
// be nil.
func Open(base string, o *Options) (*Store, error) {
	if o == nil {
		o = &Options{}
	}
	u, err := url.Parse(base)
	if err != nil {
		return nil, fmt.Errorf("%w server URL %q: it cannot be read", fence.ErrInvalid, store.Redact(base))
	}
	bad := func(format string, args ...any) (*Store, error) {
		return nil, fmt.Errorf("%w server URL %q: %s",
			fence.ErrInvalid, store.Redact(base), fmt.Sprintf(format, args...))
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Opaque != "":
		return bad("write https://HOST/ or http://127.0.0.1:PORT/")
	case u.User != nil:
		return bad("it has a user; write the token into a file, and token=@FILE into the URL")
	case u.RawQuery != "" || u.Fragment != "":
		return bad("it has more than a host and a path")
	case u.Scheme == "http" && !isLoopback(u.Hostname()) && !o.Insecure:
		return bad("http would show the secrets of leases to the network; use https, or add insecure=true")
	case u.Scheme == "http" && (o.CAFile != "" || o.CertFile != "" || o.KeyFile != ""):
		return bad("ca, cert and key are for https")
	}
	secure, err := tlsConfig(o)
	if err != nil {
		return bad("%v", err)
	}
	s := &Store{base: strings.TrimSuffix(u.String(), "/"), token: token{file: o.TokenFile}}
	if _, err := s.token.read(); err != nil {
		return bad("%v", err)
	}
	s.life, s.end = context.WithCancel(context.Background())
	s.transport = newTransport(u.Scheme == "https", secure)
	s.client = &http.Client{
		Transport:     s.transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return s, nil
}

// isLoopback reports whether only this machine can answer at a host.
func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}

func newTransport(secure bool, config *tls.Config) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	t := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSClientConfig:     config,
		TLSHandshakeTimeout: 5 * time.Second,
		Protocols:           protocols,
		MaxIdleConnsPerHost: 16,
		// The server closes idle connections later.
		IdleConnTimeout: time.Minute,
		// A server may refuse a file before its content is sent.
		ExpectContinueTimeout: 10 * time.Second,
		// Otherwise a short answer could become a long one.
		DisableCompression:     true,
		MaxResponseHeaderBytes: 64 << 10,
	}
	if secure {
		t.Proxy = http.ProxyFromEnvironment // a tunnel: the proxy sees the host's name alone
	}
	return t
}

func tlsConfig(o *Options) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if (o.CertFile == "") != (o.KeyFile == "") {
		return nil, errors.New("cert and key belong together; give both or none")
	}
	if o.CertFile != "" {
		public, err := readFile(o.CertFile)
		if err != nil {
			return nil, fmt.Errorf("cert: %w", err)
		}
		private, err := readFile(o.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("key: %w", err)
		}
		pair, err := tls.X509KeyPair(public, private)
		if err != nil {
			return nil, fmt.Errorf("cert and key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	if o.CAFile != "" {
		text, err := readFile(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("ca: %s holds no certificate in PEM form", o.CAFile)
		}
	}
	return config, nil
}

// maxFile is more than any bundle of certificates, or any token, has.
const maxFile = 4 << 20

// readFile reads a file that a URL names. Somebody else may have made the URL,
// so a device or a pipe is neither read nor waited for.
func readFile(path string) ([]byte, error) {
	return fsys.OS{}.ReadFile(fsys.Anywhere(path), maxFile)
}
