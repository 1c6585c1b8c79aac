package gcs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/auth/credentials"
	"cloud.google.com/go/auth/httptransport"
	"google.golang.org/api/option"
	"google.golang.org/api/storage/v1"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/objects"
	"github.com/croft-dev/croft/store"
)

// Connection says how to reach a bucket. The zero value is Google's own
// service, with the credentials that every Google client finds.
type Connection struct {
	// Endpoint is the address of an emulator or a private endpoint, as
	// http://host:port. The default is STORAGE_EMULATOR_HOST if that is set,
	// and Google's otherwise. An endpoint that is not https needs no
	// credentials.
	Endpoint string
	// Project is billed for requests, if the bucket makes the requester pay.
	Project string
	// Credentials replace those found the usual way:
	// GOOGLE_APPLICATION_CREDENTIALS, those of gcloud, the metadata server.
	Credentials *auth.Credentials
	// Transport carries the requests. By default all stores and guards of the
	// process share one transport.
	Transport http.RoundTripper
}

// bucket is one bucket, and the client for it.
type bucket struct {
	name string
	api  *storage.Service
	// project is billed for requests, if it is not "".
	project string
	clock   *objects.Clock
	// address names the bucket at its endpoint. Results of trials are
	// remembered under it.
	address string
	// found says where the credentials come from.
	found string
	// patience is the first pause after the service has asked to wait.
	patience time.Duration
}

// shared keeps as many connections open as a batch of renewals uses at once.
var shared = func() http.RoundTripper {
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return http.DefaultTransport
	}
	t = t.Clone()
	t.MaxIdleConnsPerHost = atOnce
	return t
}()

const scope = "https://www.googleapis.com/auth/devstorage.read_write"

// dial makes a client for a bucket. It sends nothing.
func dial(ctx context.Context, name string, c *Connection) (*bucket, error) {
	if c == nil {
		c = &Connection{}
	}
	if err := checkBucket(name); err != nil {
		return nil, err
	}
	endpoint, err := endpointOf(c.Endpoint)
	if err != nil {
		return nil, err
	}
	b := &bucket{
		name: name, project: c.Project, address: endpoint + "/" + name,
		clock: objects.NewClock(time.Second, clock.System()), patience: time.Second,
	}
	base := c.Transport
	if base == nil {
		base = shared
	}
	hc := &http.Client{Transport: &dateTransport{base: base, clock: b.clock, home: endpoint}, CheckRedirect: noRedirect}
	creds := c.Credentials
	switch {
	case creds != nil:
		b.found = "given by the program"
	case strings.HasPrefix(endpoint, "http://"):
		b.found = "none needed: the endpoint is an emulator's"
	default:
		if creds, err = credentials.DetectDefault(&credentials.DetectOptions{Scopes: []string{scope}}); err != nil {
			return nil, fmt.Errorf("gcs: no credentials were found (%w); run gcloud auth application-default login,"+
				" set GOOGLE_APPLICATION_CREDENTIALS, or name an emulator in STORAGE_EMULATOR_HOST", err)
		}
		b.found = describe(creds)
	}
	if creds != nil {
		if err := httptransport.AddAuthorizationMiddleware(hc, creds); err != nil {
			return nil, fmt.Errorf("gcs: %w", err)
		}
	}
	b.api, err = storage.NewService(ctx, option.WithHTTPClient(hc), option.WithEndpoint(endpoint+"/storage/v1/"))
	if err != nil {
		return nil, fmt.Errorf("gcs: %w", err)
	}
	return b, nil
}

// google is the endpoint of the service itself.
const google = "https://storage.googleapis.com"

// endpointOf returns the given endpoint, or that of the environment, as
// scheme://host.
func endpointOf(endpoint string) (string, error) {
	if endpoint == "" {
		endpoint = os.Getenv("STORAGE_EMULATOR_HOST")
	}
	if endpoint == "" {
		return google, nil
	}
	if !strings.Contains(endpoint, "://") {
		endpoint = "http://" + endpoint
	}
	bad := func(why string) (string, error) {
		return "", fmt.Errorf("%w endpoint %q: %s; write http://HOST:PORT",
			fence.ErrInvalid, store.Redact(endpoint), why)
	}
	u, err := url.Parse(endpoint)
	switch {
	case err != nil:
		return bad("it cannot be read")
	case u.Host == "" || (u.Scheme != "http" && u.Scheme != "https"):
		return bad("it is not of http or https")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return bad("it has more than a host and a port")
	case strings.Trim(u.Path, "/") != "" && strings.Trim(u.Path, "/") != "storage/v1":
		return bad("its path would be lost")
	}
	return u.Scheme + "://" + u.Host, nil
}

// checkBucket refuses impossible names of buckets. Without it, the service
// would answer "forbidden" to a slip in a URL. The limits are Google's: see
// https://cloud.google.com/storage/docs/buckets#naming.
func checkBucket(name string) error {
	const longest, longestDotted = 63, 222
	bad := len(name) < 3 || len(name) > longestDotted ||
		strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789._-") != ""
	for part := range strings.SplitSeq(name, ".") {
		bad = bad || len(part) > longest
	}
	if bad {
		return fmt.Errorf("%w bucket %q: names have 3 to %d lower-case letters, digits, dashes and underscores,"+
			" or up to %d if dots divide them into parts of at most %d; write gs://BUCKET/PREFIX",
			fence.ErrInvalid, name, longest, longestDotted, longest)
	}
	return nil
}

// describe says whose credentials were found, and where. It shows no secret.
func describe(creds *auth.Credentials) string {
	var file struct {
		Type        string `json:"type"`
		ClientEmail string `json:"client_email"`
		URL         string `json:"service_account_impersonation_url"`
	}
	if len(creds.JSON()) == 0 || json.Unmarshal(creds.JSON(), &file) != nil {
		return "the machine's own service account, from the metadata server"
	}
	from := "from the file gcloud keeps"
	if path := os.Getenv("GOOGLE_APPLICATION_CREDENTIALS"); path != "" {
		from = "from " + path + " (GOOGLE_APPLICATION_CREDENTIALS)"
	}
	who := strings.ReplaceAll(file.Type, "_", " ")
	if file.ClientEmail != "" {
		who += " " + file.ClientEmail
	}
	if _, as, ok := strings.Cut(file.URL, "/serviceAccounts/"); ok {
		as, _, _ = strings.Cut(as, ":")
		who += " as " + as
	}
	return who + ", " + from
}

// dateTransport tells the clock the dates of the service's answers. It runs
// after the credentials were added, and sends them only to the endpoint and to
// Google.
type dateTransport struct {
	base  http.RoundTripper
	clock *objects.Clock
	home  string // the endpoint
}

// errStranger: a request was for another host, and was not sent. The service
// answers a long upload with the address at which to continue, and that address
// may be anybody's.
var errStranger = errors.New("the endpoint sends requests, and with them the credentials, to another host;" +
	" nothing was sent there")

// noRedirect makes a client return a redirect instead of following it. The
// credentials are added to every request, also to a request to another host.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func (d *dateTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if to := req.URL.Scheme + "://" + req.URL.Host; to != d.home && to != google {
		if req.Body != nil {
			_ = req.Body.Close() // a RoundTripper must do this
		}
		return nil, fmt.Errorf("%w: %s", errStranger, to)
	}
	sent := d.clock.Local()
	resp, err := d.base.RoundTrip(req)
	if err == nil && authentic(resp) {
		if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
			d.clock.Observe(sent, d.clock.Local(), date)
		}
	}
	return resp, err
}

// authentic reports whether the service itself made an answer for this request.
// A proxy or balancer in front of it uses its own clock, and a cache has old
// answers.
func authentic(resp *http.Response) bool {
	if resp.Header.Get("Age") != "" {
		return false
	}
	return resp.StatusCode/100 == 2 || resp.StatusCode == http.StatusNotFound ||
		resp.StatusCode == http.StatusPreconditionFailed
}
