package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/logging"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
)

// address is a parsed URL: s3://bucket/path?endpoint=…
type address struct {
	bucket, path string
	endpoint     string
	region       string
	profile      string
	pathStyle    bool
	skipProbe    bool
	retention    time.Duration
}

// form shows how to write a URL. Error messages use it.
const form = "write s3://BUCKET/PATH, with ?region=, ?endpoint=https://HOST, ?path_style=true|false," +
	" ?profile= or ?probe=off if need be"

// parse reads a URL. kind is "store URL" or "target", for error messages. more
// are allowed options besides those of every URL.
func parse(u *url.URL, kind string, more ...string) (address, error) {
	bad := func(format string, args ...any) (address, error) {
		return address{}, fmt.Errorf("%w %s %q: %s; %s",
			fence.ErrInvalid, kind, store.Redact(u.String()), fmt.Sprintf(format, args...), form)
	}
	switch {
	case u.User != nil:
		return bad("credentials do not belong into it: they are found as the AWS tools find them")
	case u.Fragment != "":
		return bad("it has a fragment")
	case u.Port() != "":
		return bad("%s is where the bucket's name belongs", u.Host)
	case u.Host == "":
		return bad("it names no bucket")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return bad("what follows the question mark cannot be read")
	}
	a := address{bucket: u.Host, path: strings.TrimPrefix(u.Path, "/")}
	for name, values := range query {
		known := slices.Contains([]string{"endpoint", "region", "profile", "path_style", "probe"}, name) ||
			slices.Contains(more, name)
		if !known || len(values) != 1 {
			return bad("parameter %q is unknown or given twice", name)
		}
		switch value := values[0]; name {
		case "endpoint":
			a.endpoint = value
			if e, err := url.Parse(value); err != nil || (e.Scheme != "http" && e.Scheme != "https") ||
				e.Host == "" || e.User != nil {
				return bad("endpoint %q is not the URL of a server", store.Redact(value))
			}
			if !query.Has("path_style") {
				a.pathStyle = true // few servers but Amazon's have a host name for every bucket
			}
		case "region":
			a.region = value
		case "profile":
			a.profile = value
		case "path_style":
			if a.pathStyle, err = strconv.ParseBool(value); err != nil {
				return bad("path_style is true or false")
			}
		case "probe":
			if value != "on" && value != "off" {
				return bad("probe is on or off")
			}
			a.skipProbe = value == "off"
		case "retention":
			if a.retention, err = time.ParseDuration(value); err != nil || a.retention <= 0 {
				return bad("retention %q is not a positive duration, such as 24h", value)
			}
		}
	}
	return a, nil
}

// errNoRegion: a client for Amazon's endpoints needs a region.
var errNoRegion = fmt.Errorf("%w: none is configured; set AWS_REGION, or add ?region= to the URL", ErrRegion)

// connect makes a client. It finds credentials the usual way: environment,
// profile, role. It sends nothing yet.
func (a address) connect(ctx context.Context) (*awss3.Client, func(), error) {
	transport := awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		t.MaxIdleConnsPerHost = 64
		// For a server that hangs. Callers with less patience use the context.
		t.ResponseHeaderTimeout = 30 * time.Second
	})
	options := []func(*config.LoadOptions) error{
		config.WithHTTPClient(transport),
		config.WithLogger(logging.Nop{}), // the usual one writes to this program's standard error
	}
	if a.region != "" {
		options = append(options, config.WithRegion(a.region))
	}
	if a.profile != "" {
		options = append(options, config.WithSharedConfigProfile(a.profile))
	}
	loaded, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: the AWS configuration cannot be used;"+
			" look at the profile and at ~/.aws/config: %w", ErrDenied, err)
	}
	if loaded.Region == "" && a.endpoint == "" && loaded.BaseEndpoint == nil {
		return nil, nil, errNoRegion
	}
	if loaded.Region == "" {
		loaded.Region = "us-east-1" // the usual name for servers without regions
	}
	own, closeIdle := closable(loaded.HTTPClient)
	client := awss3.NewFromConfig(loaded, func(o *awss3.Options) {
		o.HTTPClient = own
		if a.endpoint != "" {
			o.BaseEndpoint = aws.String(a.endpoint)
		}
		o.UsePathStyle = a.pathStyle
	})
	return client, closeIdle, nil
}

// closable returns a client like the one in AWS's configuration, and a function
// that closes its idle connections.
func closable(c awss3.HTTPClient) (awss3.HTTPClient, func()) {
	usual, ok := c.(*awshttp.BuildableClient)
	if !ok { // never: connect has put this type into the configuration
		return c, func() {}
	}
	t := usual.GetTransport()
	return &http.Client{Transport: t, Timeout: usual.GetTimeout()}, t.CloseIdleConnections
}

// unknown marks errors of opening that only say that the service could not be
// asked.
func unknown(err error) error {
	for _, known := range []error{ErrPreconditions, ErrDenied, ErrRegion, ErrClock, ErrNoBucket, fence.ErrInvalid} {
		if errors.Is(err, known) {
			return err
		}
	}
	return store.Unknown(store.Unreachable(err)) // opening changes no lease
}
