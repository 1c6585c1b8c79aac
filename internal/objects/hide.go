package objects

import (
	"errors"
	"net/url"
	"strings"
)

// HideQuery removes the query from the URL in the error of an HTTP client,
// because errors are logged. The query of a presigned request has its signature
// and session token. That of a resumable upload has the id with which anybody
// can continue the upload.
func HideQuery(err error) {
	var failed *url.Error
	if errors.As(err, &failed) {
		failed.URL, _, _ = strings.Cut(failed.URL, "?")
	}
}
