package s3

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/croft-dev/croft/internal/objects"
)

// fault says what an error means for its request.
type fault int

const (
	unsure    fault = iota // no answer, or an unclear one: the request may have taken effect
	overtaken              // 412: the condition does not hold
	absent                 // 404: there is no such object
	busy                   // 409: another request on this object was under way; not done, ask again
	slow                   // 429, 503: too many requests; not done, ask again later
	refused                // anything else: asking again does not help
)

func faultOf(err error) fault {
	status, code := answerOf(err)
	switch {
	case noCredentials(err): // the status is that of whatever hands out credentials
		if status == http.StatusTooManyRequests || status >= 500 {
			return slow
		}
		return refused
	case status == http.StatusPreconditionFailed:
		return overtaken
	case status == http.StatusNotFound && (code == "NoSuchKey" || code == "NotFound"):
		return absent
	case status == http.StatusConflict:
		return busy
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable, code == "SlowDown":
		return slow
	case status == 0, status >= 500 && status != http.StatusNotImplemented, code == "RequestTimeout":
		return unsure
	}
	return refused
}

// noCredentials reports whether the SDK found no credentials, and so sent the
// bucket no request. Text from a service proves nothing: the SDK's own words
// stand before any answer.
func noCredentials(err error) bool {
	var call *smithy.OperationError // the bucket's; those of credentials are inside it
	if !errors.As(err, &call) {
		return false
	}
	for err := call.Err; err != nil; err = errors.Unwrap(err) {
		text := err.Error()
		if strings.HasPrefix(text, "get credentials: ") || strings.HasPrefix(text, "failed to retrieve credentials: ") {
			return true
		}
	}
	return false
}

// answerOf returns the status and the code of the service's answer. The status
// is 0 if there was none.
func answerOf(err error) (status int, code string) {
	var response *smithyhttp.ResponseError
	if errors.As(err, &response) {
		status = response.HTTPStatusCode()
	}
	var api smithy.APIError
	if errors.As(err, &api) {
		code = api.ErrorCode()
	}
	return status, code
}

// dateOf returns when an error response was made.
func dateOf(err error) (time.Time, bool) {
	return dated(headerOf(err))
}

func headerOf(err error) http.Header {
	var response *smithyhttp.ResponseError
	if !errors.As(err, &response) || response.Response == nil {
		return nil
	}
	return response.Response.Header
}

// The reasons for which a service refuses a client, to match with errors.Is.
var (
	// ErrDenied: the credentials are missing, wrong, or lack a permission.
	ErrDenied = errors.New("access denied")
	// ErrRegion: the requests are for another region than the bucket's.
	ErrRegion = errors.New("wrong region")
	// ErrClock: this machine's clock is so wrong that the service refuses its
	// requests.
	ErrClock = errors.New("this machine's clock is wrong")
	// ErrNoBucket: there is no such bucket.
	ErrNoBucket = errors.New("no such bucket")
)

// explain wraps an error of the SDK. It names the fault and the remedy.
func (b *bucket) explain(err error) error {
	objects.HideQuery(err)
	status, code := answerOf(err)
	where := b.where()
	switch {
	case noCredentials(err):
		return fmt.Errorf("%w: no credentials for %s were found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY,"+
			" name a profile with ?profile=, or run where a role is attached: %w", ErrDenied, where, err)
	case code == "RequestTimeTooSkewed":
		off := ""
		if date, ok := dateOf(err); ok {
			off = fmt.Sprintf(" by %s", time.Since(date).Abs().Round(time.Second))
		}
		return fmt.Errorf("%w%s: %s refuses requests that are dated so differently;"+
			" set the clock, for example by NTP: %w", ErrClock, off, where, err)
	case code == "NoSuchBucket", status == http.StatusNotFound && code == "NotFound":
		return fmt.Errorf("%w: %s; create it, or correct its name or the endpoint: %w", ErrNoBucket, where, err)
	case status == http.StatusMovedPermanently, status == http.StatusTemporaryRedirect,
		code == "AuthorizationHeaderMalformed", code == "PermanentRedirect",
		code == "IllegalLocationConstraintException":
		region := headerOf(err).Get("X-Amz-Bucket-Region")
		advice := "add the bucket's own as ?region= to the URL"
		if region != "" {
			advice = fmt.Sprintf("the bucket is in %s: add ?region=%s to the URL", region, region)
		}
		return fmt.Errorf("%w: requests to %s were made for %q; %s: %w",
			ErrRegion, where, b.client.Options().Region, advice, err)
	case code == "InvalidAccessKeyId", code == "SignatureDoesNotMatch", code == "ExpiredToken",
		code == "InvalidToken", code == "TokenRefreshRequired":
		return fmt.Errorf("%w: %s does not know or no longer accepts these credentials (%s); renew them: %w",
			ErrDenied, where, code, err)
	case status == http.StatusForbidden, status == http.StatusUnauthorized:
		return fmt.Errorf("%w: %s; allow s3:GetObject, s3:PutObject and s3:DeleteObject on the objects and"+
			" s3:ListBucket on the bucket (without the last, a missing object looks like a forbidden one): %w",
			ErrDenied, where, err)
	case faultOf(err) == slow:
		return fmt.Errorf("%s asks for fewer requests; use a longer TTL or fewer keys at a time: %w", where, err)
	case status == 0:
		return fmt.Errorf("%s did not answer; check that it can be reached: %w", where, err)
	}
	return fmt.Errorf("%s: %w", where, err)
}

// where names the bucket for messages.
func (b *bucket) where() string {
	if endpoint := aws.ToString(b.client.Options().BaseEndpoint); endpoint != "" {
		return fmt.Sprintf("bucket %s at %s", b.name, endpoint)
	}
	return "bucket " + b.name
}
