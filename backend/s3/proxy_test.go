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

	"github.com/croft-dev/croft/internal/testenv"
)

// gateway stands before the server and does what a test says.
type gateway struct {
	*httptest.Server
	mu sync.Mutex
	// before is asked about every request. A status above zero is answered instead of passing it on; lost passes it on and cuts the connection instead of answering.
	before func(r *http.Request) (status int, lost bool)
	// after is told of a request that was passed on, before its answer is.
	after func(r *http.Request)
	// code and header are those of an answer instead, if S3's usual ones will not do.
	code   string
	header map[string]string
	// strip takes headers away.
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
			r.Out.Host = r.In.Host // it is signed
			for _, name := range g.strip {
				r.Out.Header.Del(name)
			}
			if len(g.strip) > 0 { // as a gateway does that speaks to the service with credentials of its own
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

// codes are what S3 calls its answers.
var codes = map[int]string{
	403: "AccessDenied", 409: "ConditionalRequestConflict", 412: "PreconditionFailed", 429: "TooManyRequests", 500: "InternalError", 503: "SlowDown",
}

// during lets something happen while the gateway does what before says.
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

// requests are those since the last call.
func (g *gateway) requests() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	asked := g.asked
	g.asked = nil
	return asked
}

// client goes through the gateway.
func (g *gateway) client(server *testenv.S3Server) *awss3.Client {
	return dial(server, func(o *awss3.Options) { o.BaseEndpoint = aws.String(g.URL) })
}

// leases tells requests on records from those of opening a store.
func leases(r *http.Request) bool { return strings.Contains(r.URL.Path, "/leases/") }
