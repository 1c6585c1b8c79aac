package objects

import (
	"errors"
	"net/url"
	"strings"
)

// HideQuery takes the query out of the URL in the error of an HTTP client. A
// presigned request has its signature and session token there, and a resumable
// upload the id that lets anybody go on with it. Errors are logged.
func HideQuery(err error) {
	var failed *url.Error
	if errors.As(err, &failed) {
		failed.URL, _, _ = strings.Cut(failed.URL, "?")
	}
}
