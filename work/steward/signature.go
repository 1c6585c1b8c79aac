package steward

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/croft-dev/croft/fence"
)

// The headers of a webhook's request.
const (
	HeaderKey       = "Idempotency-Key" // the effect's identity: the same in every attempt
	HeaderTime      = "Croft-Timestamp" // seconds since 1970, when this attempt was signed
	HeaderSignature = "Croft-Signature" // "v1=" and hex digits
	HeaderItem      = "Croft-Item"
	HeaderEffect    = "Croft-Effect"
	HeaderQueue     = "Croft-Queue"
	HeaderToken     = "Croft-Token" // of the completion that set it off
	HeaderAttempt   = "Croft-Attempt"
)

// Sign is the signature of a request: HMAC-SHA256 over timestamp, Idempotency-Key and body, each but the last followed by a line feed.
func Sign(secret []byte, timestamp, key string, body []byte) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(timestamp + "\n" + key + "\n"))
	mac.Write(body)
	return "v1=" + hex.EncodeToString(mac.Sum(nil))
}

// Verify is for receivers: it reports why a request was not signed with the secret, or was signed longer than tolerance before or after now. The body is the whole one, as it was received.
func Verify(secret []byte, h http.Header, body []byte, now time.Time, tolerance time.Duration) error {
	timestamp := h.Get(HeaderTime)
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil {
		return fmt.Errorf("%w signature: the header %s is not a number of seconds", fence.ErrInvalid, HeaderTime)
	}
	want := Sign(secret, timestamp, h.Get(HeaderKey), body)
	matches := false
	for given := range strings.SplitSeq(h.Get(HeaderSignature), ",") { // several while a secret is being replaced
		matches = matches || hmac.Equal([]byte(strings.TrimSpace(given)), []byte(want))
	}
	if !matches {
		return fmt.Errorf("%w signature: it was not made with this secret, or the request was changed on its way", fence.ErrInvalid)
	}
	if off := now.Sub(time.Unix(seconds, 0)).Abs(); off > tolerance {
		return fmt.Errorf("%w signature: it is %s off, at most %s is allowed; it may be a copy of an old request, or a clock is wrong", fence.ErrInvalid, round(off), tolerance)
	}
	return nil
}
