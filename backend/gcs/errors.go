package gcs

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"

	"cloud.google.com/go/auth"
	"google.golang.org/api/googleapi"

	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/objects"
	"github.com/croft-dev/croft/internal/wait"
)

// verdict says what an error of the service means for its request.
type verdict int

const (
	done      verdict = iota
	mismatch          // 412: a condition does not hold; nothing was changed
	missing           // 404: there is no such object, or no such bucket
	throttled         // 429: too many requests; nothing was changed, ask again later
	doubtful          // 408, 409, 5xx, or no answer: it may have taken effect
	refused           // anything else: asking again does not help; nothing was changed
)

// judge says what the error of a request means. A 409 says that another request
// on the object is under way, but not which one wins. So it is sent again, like
// after a 503.
func judge(err error) verdict {
	var api *googleapi.Error
	var token *auth.Error
	switch {
	case err == nil:
		return done
	case errors.As(err, &token) && !token.Temporary():
		return refused
	case errors.Is(err, errUploadGone), errors.Is(err, errNoBucket), errors.Is(err, errStranger):
		return refused
	case !errors.As(err, &api):
		return doubtful
	}
	switch code := api.Code; {
	case code == http.StatusPreconditionFailed, code == http.StatusNotModified:
		return mismatch
	case code == http.StatusNotFound:
		return missing
	case code == http.StatusTooManyRequests:
		return throttled
	case code == http.StatusRequestTimeout, code == http.StatusConflict,
		code >= http.StatusInternalServerError: // proxies have numbers of their own
		return doubtful
	}
	return refused
}

// These bound how often a request is sent. After that the outcome is left to
// the caller, which asks again by its own rules.
const (
	mostTries = 4 // if the network or the service fails
	mostWaits = 6 // if the service asks to wait
)

// again decides whether to send a failed request once more, and waits before
// that. try is how often it has been sent.
func (b *bucket) again(ctx context.Context, v verdict, try int) bool {
	switch {
	case v == throttled && try < mostWaits:
		// The limit is one write a second to an object, so an earlier try is
		// useless.
		return clock.Sleep(ctx, b.patience<<min(try-1, 3)+rand.N(b.patience/2)) == nil
	case v == doubtful && try < mostTries:
		return objects.Pause(ctx, try-1) == nil
	}
	return false
}

// explain names the fault and the remedy. right is the permission that the
// request needs.
func (b *bucket) explain(ctx context.Context, right string, err error) error {
	if ctx.Err() != nil {
		return wait.Ended(ctx)
	}
	objects.HideQuery(err)
	var api *googleapi.Error
	if !errors.As(err, &api) {
		if errors.Is(err, errUploadGone) || errors.Is(err, errNoBucket) {
			return err
		}
		if errors.Is(err, errStranger) {
			return fmt.Errorf("gcs: %s: %w; name the endpoint itself with endpoint=", b.address, err)
		}
		var token *auth.Error
		if errors.As(err, &token) {
			return fmt.Errorf("gcs: bucket %s: no token is given for the credentials (%s): %w;"+
				" renew them, for example with gcloud auth application-default login", b.name, b.found, err)
		}
		var network *url.Error
		if !errors.As(err, &network) {
			return fmt.Errorf("gcs: %s: %w; ask again", b.address, err)
		}
		return fmt.Errorf("gcs: %s cannot be reached: %w; see whether the network lets storage.googleapis.com through,"+
			" or STORAGE_EMULATOR_HOST is right", b.address, err)
	}
	said := api.Message
	if said == "" {
		said = strings.TrimSpace(api.Body)
	}
	what := func(advice string) error {
		return fmt.Errorf("gcs: bucket %s: %w; %s", b.name, &answered{api, said}, advice)
	}
	switch api.Code {
	case http.StatusUnauthorized:
		return what("the credentials (" + b.found + ") are not accepted:" +
			" renew them, for example with gcloud auth application-default login")
	case http.StatusForbidden:
		if strings.Contains(said, "retention") ||
			reasoned(api, "retentionPolicyNotMet") || reasoned(api, "objectUnderActiveHold") {
			return what("a retention policy or a hold keeps objects from being replaced:" +
				" keep leases in a bucket without one")
		}
		return what("the credentials (" + b.found + ") lack " + right + " there:" +
			" grant roles/storage.objectUser on the bucket, or a role with that right")
	case http.StatusNotFound:
		return what("see whether the name is right, and that the bucket exists")
	case http.StatusTooManyRequests:
		return what("the service takes one write a second to an object: ask again, and use longer TTLs if this goes on")
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return what("it sends requests elsewhere, and credentials do not follow:" +
			" name the endpoint itself with endpoint=")
	case http.StatusBadRequest:
		return what("the request was not understood: is this endpoint a Google Cloud Storage?")
	}
	return what("ask again")
}

// answered is an error of the service in one line, without the page that some
// proxies add.
type answered struct {
	err  *googleapi.Error
	said string
}

func (e *answered) Error() string { return fmt.Sprintf("status %d: %.200s", e.err.Code, e.said) }
func (e *answered) Unwrap() error { return e.err }

// bucketMissing reports whether the bucket is missing. A missing object has the
// same status.
func bucketMissing(err error) bool {
	var api *googleapi.Error
	return errors.As(err, &api) && strings.Contains(api.Message+api.Body, "bucket does not exist")
}

func reasoned(api *googleapi.Error, reason string) bool {
	for _, item := range api.Errors {
		if item.Reason == reason {
			return true
		}
	}
	return false
}
