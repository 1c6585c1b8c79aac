package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/objects"
)

// grain is how far the Date of a response may be behind. Some servers make the
// header once a second for all responses.
const grain = 2 * time.Second

// bucket is a bucket, and what this client knows about its service.
type bucket struct {
	client *awss3.Client
	name   string
	clock  *objects.Clock
	// versioned is set once a response has shown that the bucket keeps old
	// versions.
	versioned *atomic.Bool
	pageSize  *int32 // of listings; nil means the service's own; set in tests
}

// newBucket makes a client for conditional writes. It does not change the
// caller's client.
func newBucket(client *awss3.Client, name string) *bucket {
	b := &bucket{name: name, clock: objects.NewClock(grain, clock.System()), versioned: &atomic.Bool{}}
	options := client.Options()
	if usual, ok := options.HTTPClient.(*awshttp.BuildableClient); ok {
		options.HTTPClient = frozen(usual) // before New, which may put a copy in its place
	}
	b.client = awss3.New(options, func(o *awss3.Options) {
		o.ExpressCredentials = nil // it belongs to the caller's client; New would bind it to this one
		if c, ok := o.HTTPClient.(*http.Client); ok {
			mine := *c
			mine.CheckRedirect = noRedirect
			o.HTTPClient = &mine
		}
		o.HTTPClient = observer{o.HTTPClient, b}
		// For reads: a caller that waits for a lease should soon learn that the
		// outcome is unknown.
		o.Retryer = retry.AddWithMaxBackoffDelay(o.Retryer, 500*time.Millisecond)
		// Some servers other than Amazon's refuse chunked bodies with a
		// trailing checksum.
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
	})
	return b
}

// pools has the result of frozen for each of the SDK's clients in use.
var pools sync.Map // of aws.HTTPClient by weak.Pointer[awshttp.BuildableClient]

// frozen returns the *http.Client that one of the SDK's clients would make. All
// stores and guards of a client get the same one, and share its connections.
func frozen(usual *awshttp.BuildableClient) aws.HTTPClient {
	name := weak.Make(usual)
	pool, known := pools.LoadOrStore(name, usual.Freeze())
	if !known {
		runtime.AddCleanup(usual, func(name weak.Pointer[awshttp.BuildableClient]) { pools.Delete(name) }, name)
	}
	return pool.(aws.HTTPClient)
}

// noRedirect makes a client return a redirect instead of following it. A signed
// request is meant for the server that was asked. A presigned request has its
// signature in its URL, and the next host would see that as the referrer.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// observer reads the date and the version from every response.
type observer struct {
	next awss3.HTTPClient
	*bucket
}

func (o observer) Do(request *http.Request) (*http.Response, error) {
	sent := o.clock.Local()
	response, err := o.next.Do(request)
	if err == nil && authentic(response.StatusCode) {
		if date, known := dated(response.Header); known {
			o.clock.Observe(sent, o.clock.Local(), date)
		}
		if version := response.Header.Get("X-Amz-Version-Id"); version != "" && version != "null" {
			o.versioned.Store(true)
		}
	}
	return response, err
}

// authentic reports whether the service itself made a response. A proxy or
// balancer in front of it uses its own clock.
func authentic(status int) bool {
	return status/100 == 2 || status == http.StatusNotFound || status == http.StatusPreconditionFailed
}

// noRetry keeps the SDK from sending a request twice. If the first copy of a
// conditional write had succeeded, the second would be told that another was
// faster.
func noRetry(o *awss3.Options) { o.Retryer = aws.NopRetryer{} }

// object is an object as it was read.
type object struct {
	data []byte
	tag  string
	// date is when the response was made, on the service's clock and in whole
	// seconds. modified is when the object was written.
	date, modified time.Time
}

// errAbsent: there is no such object. get returns the date of the response all
// the same.
var errAbsent = errors.New("no such object")

// errNoDate: without a date the store cannot judge expiry.
var errNoDate = errors.New("the service's responses have no Date header, by which leases expire," +
	" or come from a cache; make whatever stands before it pass responses on as they are and keep none")

// get reads a small object. It reads at most one byte more than
// [objects.MaxBody], which shows that the object is too long.
func (b *bucket) get(ctx context.Context, name string) (object, error) {
	out, err := b.client.GetObject(ctx, &awss3.GetObjectInput{Bucket: &b.name, Key: &name})
	if err != nil {
		date, known := dateOf(err)
		if f := faultOf(err); f == absent && known {
			return object{date: date}, errAbsent
		} else if f == absent {
			return object{}, errNoDate
		}
		return object{}, b.explain(err)
	}
	defer out.Body.Close()
	data, err := io.ReadAll(io.LimitReader(out.Body, objects.MaxBody+1))
	if err != nil {
		return object{}, b.explain(err)
	}
	o := object{data: data, tag: aws.ToString(out.ETag), modified: aws.ToTime(out.LastModified)}
	var known bool
	if o.date, known = dateIn(out.ResultMetadata); !known {
		return object{}, errNoDate
	}
	return o, nil
}

func dateIn(m middleware.Metadata) (time.Time, bool) {
	response, ok := awsmiddleware.GetRawResponse(m).(*smithyhttp.Response)
	if !ok {
		return time.Time{}, false
	}
	return dated(response.Header)
}

// dated returns when a response was made. A response from a cache has an Age.
// Its date is in the past, and a deadline set by it would be too early for its
// holder.
func dated(header http.Header) (time.Time, bool) {
	if age := header.Get("Age"); age != "" && age != "0" {
		return time.Time{}, false
	}
	date, err := http.ParseTime(header.Get("Date"))
	return date, err == nil
}

// put writes an object, with one request. If tag is empty, there must be no
// object. Otherwise the object must still have this tag. The error is the
// SDK's.
func (b *bucket) put(ctx context.Context, name, tag string, data []byte) (string, error) {
	in := &awss3.PutObjectInput{
		Bucket: &b.name, Key: &name, Body: bytes.NewReader(data), ContentType: aws.String("application/json"),
	}
	if tag == "" {
		in.IfNoneMatch = aws.String("*")
	} else {
		in.IfMatch = &tag
	}
	out, err := b.client.PutObject(ctx, in, noRetry)
	if err != nil {
		return "", err
	}
	return aws.ToString(out.ETag), nil
}

// tries bounds how often a request is sent if the service asks to wait.
const tries = 6

// swap replaces the object that has this tag, or creates it if tag is empty. It
// returns the new tag.
//
// It returns errOvertaken if the object has changed: this write has not taken
// effect, and will not. It returns errEclipsed if this write may have taken
// effect before another followed.
//
// data must differ from all earlier content. Then the condition holds for at
// most one copy of the request, and reading the object back shows whose it is.
func (b *bucket) swap(ctx context.Context, name, tag string, data []byte) (string, error) {
	doubt := false // a copy of the request may have taken effect
	for try := 0; ; try++ {
		written, err := b.put(ctx, name, tag, data)
		if err == nil {
			return written, nil
		}
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		switch faultOf(err) {
		case overtaken:
			if !doubt {
				return "", errOvertaken
			}
			// Perhaps the first copy of this very write was faster.
		case absent:
			if tag != "" && !doubt {
				return "", errOvertaken // the object was deleted
			}
		case busy, slow:
			// The service has not done it. But the answer may come from a
			// gateway in front of it, which cannot know.
			doubt = true
			if try+1 < tries {
				if err := objects.Pause(ctx, try); err != nil {
					return "", err
				}
				continue
			}
		case unsure:
			doubt = true
		default:
			return "", b.explain(err)
		}
		if written, err := b.settle(ctx, name, tag, data); written != "" || err != nil {
			return written, err
		}
		if try+1 >= tries {
			return "", b.explain(err)
		}
		if err := objects.Pause(ctx, try); err != nil {
			return "", err
		}
	}
}

// settle reads the object after a write with an unknown outcome. It returns the
// tag if the write has taken effect, and errEclipsed if another write has
// followed. It returns neither if nothing has changed yet.
func (b *bucket) settle(ctx context.Context, name, tag string, data []byte) (string, error) {
	now, err := b.get(ctx, name)
	switch {
	case errors.Is(err, errAbsent) && tag == "":
		return "", nil
	case errors.Is(err, errAbsent):
		return "", errEclipsed
	case err != nil:
		return "", err
	case bytes.Equal(now.data, data):
		return now.tag, nil
	case now.tag == tag:
		return "", nil
	}
	return "", errEclipsed
}

var (
	// errOvertaken: another write has changed the object since it was read.
	errOvertaken = errors.New("another was faster")
	// errEclipsed is an errOvertaken of a write that may have taken effect
	// before the other one.
	errEclipsed = fmt.Errorf("the reply was lost, and now %w", errOvertaken)
)

// now asks for the service's time.
func (b *bucket) now(ctx context.Context) (time.Time, error) {
	out, err := b.client.HeadBucket(ctx, &awss3.HeadBucketInput{Bucket: &b.name})
	if err != nil {
		return time.Time{}, b.explain(err)
	}
	if date, known := dateIn(out.ResultMetadata); known {
		return date, nil
	}
	return time.Time{}, errNoDate
}

// span returns the service's time: computed if possible, otherwise by asking.
func (b *bucket) span(ctx context.Context) (earliest, latest time.Time, err error) {
	if earliest, latest, known := b.clock.Span(); known {
		return earliest, latest, nil
	}
	if _, err := b.now(ctx); err != nil {
		return time.Time{}, time.Time{}, err
	}
	earliest, latest, _ = b.clock.Span()
	return earliest, latest, nil
}
