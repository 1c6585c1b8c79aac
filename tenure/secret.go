package tenure

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/croft-dev/croft/fence"
)

// Secret proves ownership of one grant: 128 random bits as 32 lower-case hex
// digits. The client makes it before it sends the request. So if the reply is
// lost, the client asks again with the same secret and gets the same answer.
// Stores keep only its fingerprint.
//
// A Secret prints as "[secret]". Convert it to a string to get at it.
type Secret string

// NewSecret returns a new random secret. Use each for one grant only.
func NewSecret() Secret {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand aborts the program instead
	return Secret(hex.EncodeToString(b[:]))
}

// Grant returns the secret's fingerprint, which is safe to store and to log.
func (s Secret) Grant() fence.Grant {
	sum := sha256.Sum256([]byte(s))
	return fence.Grant(hex.EncodeToString(sum[:16]))
}

// Valid reports whether s is 32 lower-case hex digits.
func (s Secret) Valid() bool { return fence.Grant(s).Valid() }

// String returns "[secret]", so that printing a value does not reveal the
// secret.
func (s Secret) String() string { return "[secret]" }

// GoString hides the secret from %#v.
func (s Secret) GoString() string { return `tenure.Secret("[secret]")` }

// MarshalText hides the secret from JSON, and so from structured logs.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Deed lets a holder act on its lease from another process: `croft acquire`
// prints one, `croft renew` and `croft release` take it. Its text form holds
// the secret. Keep it in a file of mode 0600, never in an environment or an
// argument list.
type Deed struct {
	Key    string
	Token  fence.Token
	Secret Secret
	TTL    time.Duration
	// Signature is that of the stamp, if somebody has signed it.
	Signature fence.Signature
}

const deedPrefix = "croft-lease1"

// Stamp returns the stamp that the holder's writes carry.
func (d Deed) Stamp() fence.Stamp {
	return fence.Stamp{Key: d.Key, Token: d.Token, Grant: d.Secret.Grant(), Signature: d.Signature}
}

// String returns the deed without its secret. [Deed.Text] returns the form that
// [ParseDeed] reads.
func (d Deed) String() string {
	return d.text("[secret]")
}

// Text returns the deed as one printable word, secret included:
// "croft-lease1:token:secret:ttl:key". A colon and the signature follow, if
// there is one.
func (d Deed) Text() string { return d.text(string(d.Secret)) }

func (d Deed) text(secret string) string {
	text := fmt.Sprintf("%s:%d:%s:%s:%s", deedPrefix, d.Token, secret, d.TTL, fence.EscapeKey(d.Key))
	if d.Signature != "" {
		text += ":" + string(d.Signature)
	}
	return text
}

// ParseDeed reads the text form of a deed. It accepts only what [Deed.Text]
// writes. Its errors match [fence.ErrInvalid] and do not repeat the text, which
// may hold a secret.
func ParseDeed(text string) (Deed, error) {
	bad := func(why string) (Deed, error) {
		return Deed{}, fmt.Errorf("%w lease text: %s; pass on unchanged what acquire printed", fence.ErrInvalid, why)
	}
	parts := strings.Split(text, ":")
	if len(parts) != 5 && len(parts) != 7 || parts[0] != deedPrefix {
		return bad("it does not have the form croft-lease1:token:secret:ttl:key or " +
			"croft-lease1:token:secret:ttl:key:id:signature")
	}
	token, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil || !fence.Token(token).Valid() {
		return bad("its token is not a valid number")
	}
	if !Secret(parts[2]).Valid() {
		return bad("its secret is not 32 lower-case hex digits")
	}
	ttl, err := time.ParseDuration(parts[3])
	if err != nil || ttl < MinTTL || ttl > MaxTTL {
		return bad("its TTL is not a valid duration")
	}
	key, err := fence.UnescapeKey(parts[4])
	if err != nil {
		return bad("its key is not percent-encoded as it should be")
	}
	if err := fence.CheckKey(key); err != nil {
		return Deed{}, fmt.Errorf("lease text: %w", err)
	}
	d := Deed{Key: key, Token: fence.Token(token), Secret: Secret(parts[2]), TTL: ttl}
	if d.Signature = fence.Signature(strings.Join(parts[5:], ":")); d.Signature != "" {
		if _, _, ok := d.Signature.Split(); !ok {
			return bad("its signature does not have the right form")
		}
	}
	if d.Text() != text {
		return bad("it is not in the one form that is written")
	}
	return d, nil
}
