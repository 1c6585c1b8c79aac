package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/fsys"
	"github.com/croft-dev/croft/store"
)

func init() {
	for _, scheme := range []string{"etcd", "etcds"} {
		store.Register(scheme, openURL)
		guard.Register(scheme, openGuardURL)
	}
}

// cluster is a cluster and a prefix that a URL names.
type cluster struct {
	config clientv3.Config
	prefix string
	rest   url.Values // options that are not about the connection
}

// openURL opens a store with a client of its own.
func openURL(ctx context.Context, u *url.URL) (store.Store, error) {
	bad := func(format string, args ...any) (store.Store, error) {
		return nil, fmt.Errorf("%w store URL %q: %s",
			fence.ErrInvalid, store.Redact(u.String()), fmt.Sprintf(format, args...))
	}
	if u.Fragment != "" {
		return bad("what follows # names a guarded key, a store has none")
	}
	p, err := parseURL(u)
	if err != nil {
		return bad("%v", err)
	}
	o := Options{Prefix: p.prefix}
	if text := p.rest.Get("retention"); text != "" {
		if o.Retention, err = time.ParseDuration(text); err != nil || o.Retention <= 0 {
			return bad("retention %q: write a duration, such as 24h", text)
		}
		p.rest.Del("retention")
	}
	for name := range p.rest {
		return bad("unknown option %q; known are cert, key, cacert, servername and retention", name)
	}
	client, err := p.dial(ctx)
	if err != nil {
		return nil, err
	}
	s := New(client, &o)
	s.owned = true
	return s, nil
}

// openGuardURL opens the guard of etcd://HOST:PORT/PREFIX#KEY.
func openGuardURL(ctx context.Context, u *url.URL) (guard.Guard, error) {
	bad := func(format string, args ...any) (guard.Guard, error) {
		return nil, fmt.Errorf("%w target %q: %s",
			fence.ErrInvalid, store.Redact(u.String()), fmt.Sprintf(format, args...))
	}
	if u.Fragment == "" {
		return bad("it names no key; write %s://HOST:PORT/#KEY", u.Scheme)
	}
	p, err := parseURL(u)
	if err != nil {
		return bad("%v", err)
	}
	for name := range p.rest {
		return bad("%s is no option of a guarded key; known are cert, key, cacert and servername", name)
	}
	client, err := p.dial(ctx)
	if err != nil {
		return nil, err
	}
	g, err := OpenGuard(client, p.prefix+u.Fragment, nil)
	if err != nil {
		_ = client.Close()
		return nil, err
	}
	shown := *u
	if shown.User != nil {
		shown.User = url.User(u.User.Username())
	}
	g.owned, g.target = true, shown.String()
	return g, nil
}

// dial makes a client. It logs in if the URL has a user.
func (p *cluster) dial(ctx context.Context) (*clientv3.Client, error) {
	lasting, met := withDialFailure(context.WithoutCancel(ctx))
	config := p.config
	config.Context = lasting
	client, err := clientv3.New(config)
	if err != nil {
		return nil, store.Unknown(explain(ctx, met.reason(err)))
	}
	return client, nil
}

// parseURL reads a URL as in the package comment. It sends nothing: a cluster
// that is down now may be up when it is needed.
func parseURL(u *url.URL) (*cluster, error) {
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errors.New("what follows the question mark cannot be read")
	}
	for name, values := range query {
		if strings.Contains(name, "@") { // mostly the end of a password that is not encoded
			return nil, errors.New("what follows the question mark cannot be read; encode the password")
		}
		if len(values) != 1 || values[0] == "" {
			return nil, fmt.Errorf("%s: give it once, with a value, or leave it out", name)
		}
	}
	p := &cluster{rest: query, prefix: prefixOf(u)}
	p.config = clientv3.Config{
		DialTimeout: requestTimeout, Logger: zap.NewNop(),
		// etcd accepts a ping every 5 s.
		DialKeepAliveTime: 6 * time.Second, DialKeepAliveTimeout: 2 * time.Second,
		DialOptions: []grpc.DialOption{
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff: backoff.Config{
					BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second,
				},
				MinConnectTimeout: requestTimeout,
			}),
			grpc.WithChainUnaryInterceptor(noteDialFailure),
		},
	}
	take := func(name string) string {
		value := query.Get(name)
		query.Del(name)
		return value
	}
	cert, key, cacert, name := take("cert"), take("key"), take("cacert"), take("servername")
	secure := u.Scheme == "etcds" || cert != "" || key != "" || cacert != "" || name != ""
	if secure {
		if p.config.TLS, err = tlsConfig(cert, key, cacert, name); err != nil {
			return nil, err
		}
	}
	if name != "" {
		p.config.DialOptions = append(p.config.DialOptions,
			grpc.WithTransportCredentials(named{credentials.NewTLS(p.config.TLS), name}))
	}
	if p.config.Endpoints, err = endpoints(u.Host, secure); err != nil {
		return nil, err
	}
	if u.User != nil {
		p.config.Username = u.User.Username()
		p.config.Password, _ = u.User.Password()
	}
	return p, nil
}

// endpoints reads HOST:PORT,HOST:PORT. The default port is 2379.
func endpoints(hosts string, secure bool) ([]string, error) {
	scheme := "http://"
	if secure {
		scheme = "https://"
	}
	var out []string
	for addr := range strings.SplitSeq(hosts, ",") {
		host, port, err := splitHostPort(addr)
		if err != nil {
			return nil, err
		}
		out = append(out, scheme+net.JoinHostPort(host, port))
	}
	return out, nil
}

// splitHostPort splits HOST:PORT. It refuses hosts that could never be reached,
// and says why.
func splitHostPort(addr string) (host, port string, err error) {
	host = addr
	if net.ParseIP(addr) == nil { // otherwise it is an address alone, perhaps IPv6
		bare := strings.LastIndexByte(addr, ':') <= strings.LastIndexByte(addr, ']')
		if bare {
			host = strings.TrimSuffix(strings.TrimPrefix(addr, "["), "]")
		} else if host, port, err = net.SplitHostPort(addr); err != nil {
			return "", "", fmt.Errorf("%q is no HOST:PORT; put IPv6 addresses in brackets, [::1]:2379", addr)
		}
	}
	switch {
	case host == "":
		return "", "", errors.New("a host is missing; write etcd://HOST:2379,HOST:2379/PREFIX")
	case strings.ContainsAny(host, "; "):
		return "", "", fmt.Errorf("%q is no host; put a comma between two of them, and no space", host)
	case port == "":
		return host, "2379", nil
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return "", "", fmt.Errorf("port %q of %s: it must be a number between 1 and 65535", port, host)
	}
	return host, port, nil
}

// named are credentials for servers that all have one name in their
// certificates. etcd's client would expect each server's address there.
type named struct {
	credentials.TransportCredentials
	name string
}

// ClientHandshake expects that name.
func (n named) ClientHandshake(ctx context.Context, _ string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return n.TransportCredentials.ClientHandshake(ctx, n.name, conn)
}

// Clone makes a copy that expects the same name.
func (n named) Clone() credentials.TransportCredentials {
	return named{n.TransportCredentials.Clone(), n.name}
}

// tlsConfig makes a TLS configuration from files.
func tlsConfig(cert, key, cacert, name string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: name}
	if (cert == "") != (key == "") {
		return nil, errors.New("cert and key belong together; give both or none")
	}
	if cert != "" {
		public, err := readPEM(cert)
		if err != nil {
			return nil, fmt.Errorf("cert: %w", err)
		}
		private, err := readPEM(key)
		if err != nil {
			return nil, fmt.Errorf("key: %w", err)
		}
		pair, err := tls.X509KeyPair(public, private)
		if err != nil {
			return nil, fmt.Errorf("cert and key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	if cacert != "" {
		text, err := readPEM(cacert)
		if err != nil {
			return nil, fmt.Errorf("cacert: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("cacert: %s holds no certificate in PEM form", cacert)
		}
	}
	return config, nil
}

// maxPEM is more than any bundle of certificates has.
const maxPEM = 4 << 20

// readPEM reads a file that a URL names. Somebody else may have made the URL,
// so a device or a pipe is neither read nor waited for.
func readPEM(path string) ([]byte, error) {
	return fsys.OS{}.ReadFile(fsys.Anywhere(path), maxPEM)
}
