package s3

import (
	"bytes"
	"cmp"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/croft-dev/croft/internal/test/testenv"
)

// gateway stands in front of the server and does what a test says.
type gateway struct {
	*httptest.Server
	mu sync.Mutex
	// before decides about every request. If it returns a status, the gateway
	// answers with it and does not pass the request on. If it returns lost, the
	// gateway passes the request on and cuts the connection.
	before func(r *http.Request) (status int, lost bool)
	// after is called after a request was passed on, and before its answer is.
	after func(r *http.Request)
	// code and header change the gateway's own answers, if S3's usual ones are
	// not enough.
	code   string
	header map[string]string
	// strip removes these headers from requests.
	strip []string
	asked []string
}

func newGateway(tb testing.TB, server *testenv.S3Server) *gateway {
	tb.Helper()
	target, err := url.Parse(server.Endpoint)
	if err != nil {
		tb.Fatal(err)
	}
	g := &gateway{}
	next := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host // it is part of the signature
			for _, name := range g.strip {
				r.Out.Header.Del(name)
			}
			if len(g.strip) > 0 { // like a gateway with credentials of its own
				signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
				mine := aws.Credentials{AccessKeyID: server.AccessKey, SecretAccessKey: server.SecretKey}
				if err := signer.SignHTTP(r.Out.Context(), mine, r.Out, r.Out.Header.Get("X-Amz-Content-Sha256"), "s3", server.Region(), time.Now()); err != nil {
					tb.Error(err)
				}
			}
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		g.asked = append(g.asked, r.Method+" "+r.URL.Path)
		before, after := g.before, g.after
		g.mu.Unlock()
		if after == nil {
			after = func(*http.Request) {}
		}
		status, lost := 0, false
		if before != nil {
			status, lost = before(r)
		}
		switch {
		case lost:
			data, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(data))
			next.ServeHTTP(httptest.NewRecorder(), r)
			after(r)
			panic(http.ErrAbortHandler)
		case status > 0:
			for name, value := range g.header {
				w.Header().Set(name, value)
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "<Error><Code>"+cmp.Or(g.code, codes[status])+"</Code><Message>by the test</Message></Error>")
		default:
			next.ServeHTTP(w, r)
		}
	}))
	g.Config.ErrorLog = nil
	tb.Cleanup(g.Close)
	return g
}

// codes are S3's names of its answers.
var codes = map[int]string{
	403: "AccessDenied", 409: "ConditionalRequestConflict", 412: "PreconditionFailed", 429: "TooManyRequests", 500: "InternalError", 503: "SlowDown",
}

// during calls do while before is in force.
func (g *gateway) during(before func(r *http.Request) (int, bool), do func()) {
	g.set(before)
	defer g.set(nil)
	do()
}

func (g *gateway) set(before func(r *http.Request) (int, bool)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.before = before
}

// requests returns the requests since the last call.
func (g *gateway) requests() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	asked := g.asked
	g.asked = nil
	return asked
}

// client makes a client that goes through the gateway.
func (g *gateway) client(server *testenv.S3Server) *awss3.Client {
	return dial(server, func(o *awss3.Options) { o.BaseEndpoint = aws.String(g.URL) })
}

// leases reports whether a request is about a record, and not about opening a
// store.
func leases(r *http.Request) bool { return strings.Contains(r.URL.Path, "/leases/") }
