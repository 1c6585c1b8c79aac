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

// grain is how far the Date of a response may be behind: servers that make the header once a second for all responses exist.
const grain = 2 * time.Second

// bucket is a bucket and what this client knows of its service.
type bucket struct {
	client *awss3.Client
	name   string
	clock  *objects.Clock
	// versioned says that the bucket keeps old versions, as a response has shown.
	versioned *atomic.Bool
	pageSize  *int32 // of listings; nil, but in tests: the service's own
}

// newBucket makes the client fit for conditional writes. The caller's client stays as it is.
func newBucket(client *awss3.Client, name string) *bucket {
	b := &bucket{name: name, clock: objects.NewClock(grain, clock.System()), versioned: &atomic.Bool{}}
	options := client.Options()
	if usual, ok := options.HTTPClient.(*awshttp.BuildableClient); ok {
		options.HTTPClient = frozen(usual) // before New, which may put a copy in its place
	}
	b.client = awss3.New(options, func(o *awss3.Options) {
		o.ExpressCredentials = nil // the default one belongs to one client, and would be made another's
		if c, ok := o.HTTPClient.(*http.Client); ok {
			mine := *c
			mine.CheckRedirect = stay
			o.HTTPClient = &mine
		}
		o.HTTPClient = observer{o.HTTPClient, b}
		o.Retryer = retry.AddWithMaxBackoffDelay(o.Retryer, 500*time.Millisecond) // of reads: whoever waits for a lease is told soon that it is not known
		// Servers that are not Amazon's refuse what they do not know: chunked bodies with a checksum behind them.
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
	})
	return b
}

// pools has what frozen returned for each of the SDK's clients that is in use.
var pools sync.Map // of aws.HTTPClient by weak.Pointer[awshttp.BuildableClient]

// frozen is the *http.Client that one of the SDK's clients would make. All
// stores and guards of a client get the same one, and share its connections.
func frozen(usual *awshttp.BuildableClient) aws.HTTPClient {
	name := weak.Make(usual)
	pool, known := pools.LoadOrStore(name, usual.Freeze())
	if !known {
		runtime.AddCleanup(usual, func(name weak.Pointer[awshttp.BuildableClient]) { pools.Delete(name) }, name)
	}
	return pool.(aws.HTTPClient)
}

// stay makes a client give out a redirect instead of following it. A signed
// request is for the server that was asked. A presigned one has its signature in
// its URL, which the next host would be told as the referrer.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// observer learns from every response.
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

// authentic tells answers of the service from what a proxy or balancer before it says by its own clock.
func authentic(status int) bool {
	return status/100 == 2 || status == http.StatusNotFound || status == http.StatusPreconditionFailed
}

// once keeps the SDK from sending a request twice by itself: the second try of a conditional write that had succeeded would be told that another was faster.
func once(o *awss3.Options) { o.Retryer = aws.NopRetryer{} }

// object is what was read.
type object struct {
	data []byte
	tag  string
	// date is when the response was made, by the service's clock and in whole seconds; modified when the object was written.
	date, modified time.Time
}

// errAbsent: there is no such object. What was read has its date all the same.
var errAbsent = errors.New("no such object")

// errNoDate: expiry cannot be judged.
var errNoDate = errors.New("the service's responses have no Date header, by which leases expire, or come from a cache; make whatever stands before it pass responses on as they are and keep none")

// get reads a small object. It cuts off one that is longer than
// [objects.MaxBody], behind the byte that shows so.
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

// dated is when a response was made. What a cache has kept says so by its age: to go by its date would be to set a deadline in the past of whoever believes in it.
func dated(header http.Header) (time.Time, bool) {
	if age := header.Get("Age"); age != "" && age != "0" {
		return time.Time{}, false
	}
	date, err := http.ParseTime(header.Get("Date"))
	return date, err == nil
}

// put writes an object once: if it is still the one with this tag, or if there is none when the tag is empty. The error is the SDK's.
func (b *bucket) put(ctx context.Context, name, tag string, data []byte) (string, error) {
	in := &awss3.PutObjectInput{Bucket: &b.name, Key: &name, Body: bytes.NewReader(data), ContentType: aws.String("application/json")}
	if tag == "" {
		in.IfNoneMatch = aws.String("*")
	} else {
		in.IfMatch = &tag
	}
	out, err := b.client.PutObject(ctx, in, once)
	if err != nil {
		return "", err
	}
	return aws.ToString(out.ETag), nil
}

// tries bounds how often a request is sent that the service has put off.
const tries = 6

// swap writes an object in place of the one with a tag, or of none, and returns the new one's tag. It returns errOvertaken if that was not the object any more: this write has not taken
// effect and will not; or errEclipsed if it may have taken effect and been followed by another's. data must differ from whatever was there before: the same condition then holds for one of its copies at most, and what is read back tells whose it is.
func (b *bucket) swap(ctx context.Context, name, tag string, data []byte) (string, error) {
	doubt := false // whether a copy may have taken effect
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
			// It may be one's own first copy that was faster.
		case absent:
			if tag != "" && !doubt {
				return "", errOvertaken // deleted since
			}
		case busy, slow:
			doubt = true // the service itself has not done it, but a gateway before it may speak for itself
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

// settle reads what has become of a write that may or may not have taken effect: its tag if it has, errEclipsed if another's is there now, neither if nothing has changed yet.
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
	// errOvertaken: another has changed the object since it was read.
	errOvertaken = errors.New("another was faster")
	// errEclipsed is an errOvertaken of a write that may have been made before the other's.
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

// span is the service's time without asking, or by asking if it is not known.
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
