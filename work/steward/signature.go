package steward

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
)

// The headers of a webhook's request.
const (
	HeaderKey       = "Idempotency-Key" // the effect's identity: the same in every attempt
	HeaderTime      = "Croft-Timestamp" // seconds since 1970, when this attempt was signed
	HeaderSignature = "Croft-Signature" // "v2=" and hex digits; see Sign
	HeaderItem      = "Croft-Item"
	HeaderEffect    = "Croft-Effect"
	HeaderQueue     = "Croft-Queue"
	HeaderToken     = "Croft-Token" // of the completion that wrote the effect
	HeaderAttempt   = "Croft-Attempt"
)

// signed lists the headers under the signature, in order.
var signed = []string{HeaderTime, HeaderKey, HeaderItem, HeaderQueue, HeaderEffect, HeaderToken, HeaderAttempt}

// MinSecret is the least number of bytes of a secret. A shorter one can be
// guessed from a single request.
const MinSecret = 32

// CheckSecret returns nil if the secret can sign requests. Otherwise its error
// matches fence.ErrInvalid.
func CheckSecret(secret []byte) error {
	if len(secret) < MinSecret {
		return fmt.Errorf("%w secret of a webhook: it has %d bytes and needs at least %d; "+
			"make one with: openssl rand -hex 32", fence.ErrInvalid, len(secret), MinSecret)
	}
	return nil
}

// Sign returns the signature of a request to a URL: "v2=" and HMAC-SHA256, in
// hex. The signed text is lines that each end with a line feed, and then the
// body. The lines are "v2", the URL, and the values of Croft-Timestamp,
// Idempotency-Key, Croft-Item, Croft-Queue, Croft-Effect, Croft-Token and
// Croft-Attempt. The URL is signed without user, password and fragment, and
// with the path "/" if it has none.
func Sign(secret []byte, url string, h http.Header, body []byte) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("v2\n" + signedURL(url) + "\n"))
	for _, name := range signed {
		mac.Write([]byte(h.Get(name) + "\n"))
	}
	mac.Write(body)
	return "v2=" + hex.EncodeToString(mac.Sum(nil))
}

// Verify checks a request for its receiver. It returns an error if the request
// was not signed with the secret for this receiver, or was signed more than
// tolerance before or after now.
//
// The URL is the receiver's own, as the dispatcher is given it. The body is the
// whole body as it was received.
func Verify(secret []byte, url string, h http.Header, body []byte, now time.Time, tolerance time.Duration) error {
	if err := CheckSecret(secret); err != nil {
		return err
	}
	for _, name := range slices.Concat(signed, []string{HeaderSignature}) {
		// Of several values the receiver may use another than Verify does.
		if n := len(h.Values(name)); n != 1 {
			return fmt.Errorf("%w signature: the header %s occurs %d times, it must occur once",
				fence.ErrInvalid, name, n)
		}
		// A value with a line feed could pass for several of the signed lines.
		if strings.ContainsAny(h.Get(name), "\r\n") {
			return fmt.Errorf("%w signature: the header %s has more than one line", fence.ErrInvalid, name)
		}
	}
	seconds, err := strconv.ParseInt(h.Get(HeaderTime), 10, 64)
	if err != nil {
		return fmt.Errorf("%w signature: the header %s is not a number of seconds", fence.ErrInvalid, HeaderTime)
	}
	want := Sign(secret, url, h, body)
	matches := false
	// There are several signatures while a secret is being replaced.
	for given := range strings.SplitSeq(h.Get(HeaderSignature), ",") {
		matches = matches || hmac.Equal([]byte(strings.TrimSpace(given)), []byte(want))
	}
	if !matches {
		return fmt.Errorf("%w signature: it was not made with this secret for %s, "+
			"or the request was changed on its way", fence.ErrInvalid, store.Redact(url))
	}
	if off := now.Sub(time.Unix(seconds, 0)).Abs(); off > tolerance {
		return fmt.Errorf("%w signature: it is %s off, at most %s is allowed; "+
			"it may be a copy of an old request, or a clock is wrong", fence.ErrInvalid, round(off), tolerance)
	}
	return nil
}

// signedURL returns the form of a URL that is signed.
func signedURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return raw // nothing was sent there
	}
	u.User, u.Fragment, u.RawFragment = nil, "", ""
	if u.Path == "" {
		u.Path = "/"
	}
	return u.String()
}
