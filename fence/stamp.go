package fence

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// Token orders the owners of one key: a later grant has a higher token. Valid
// tokens are 1 to [MaxToken], so that JSON, JavaScript, Lua and SQL bigint
// carry them exactly.
type Token int64

// MaxToken is the highest token.
const MaxToken Token = 1<<53 - 1

// Valid reports whether t lies between 1 and [MaxToken].
func (t Token) Valid() bool { return t >= 1 && t <= MaxToken }

// Grant is the fingerprint of a grant's secret: 128 bits as 32 lower-case hex
// digits. It tells two grants apart and is safe to log.
type Grant string

// Valid reports whether g is 32 lower-case hex digits.
func (g Grant) Valid() bool {
	if len(g) != 32 {
		return false
	}
	for i := range len(g) {
		if c := g[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// Signature says which key has signed a grant, and how: the 16 lower-case hex
// digits of the key's id, a colon, and an Ed25519 signature as 86 digits of
// base64url. This package knows only its form. Package fence/signed makes and
// verifies signatures.
type Signature string

// signatureDigits is the length of the signature itself.
const signatureDigits = 86

// Split returns the two parts of a signature. It reports false if the signature
// does not have the right form.
func (s Signature) Split() (key, digits string, ok bool) {
	key, digits, ok = strings.Cut(string(s), ":")
	if !ok || len(key) != 16 || len(digits) != signatureDigits || strings.Trim(key, "0123456789abcdef") != "" {
		return "", "", false
	}
	_, err := base64.RawURLEncoding.Strict().DecodeString(digits)
	// The decoder skips line breaks.
	return key, digits, err == nil && !strings.ContainsAny(digits, "\r\n")
}

// Stamp travels with a write. It says for which key and under which grant the
// write is made. It holds no secret. Without a signature it proves nothing by
// itself. With one it proves that the grant was issued, to a guard that knows
// the signer's public key.
type Stamp struct {
	Key   string
	Token Token
	Grant Grant
	// Seq numbers the writes of one grant, so that the resource refuses late
	// and repeated ones. Zero means unnumbered: the resource admits such writes
	// in the order in which they arrive.
	Seq uint64
	// Signature is of key, token and grant, or empty. Marks do not keep it.
	Signature Signature
}

// Mark returns the mark of a resource that has admitted this stamp last.
func (s Stamp) Mark() Mark { return Mark{Key: s.Key, Token: s.Token, Grant: s.Grant, Seq: s.Seq} }

// MaxStamp is the length of the longest text form of a stamp.
const MaxStamp = len(stampPrefix) + 4 + 16 + 32 + 20 + 3*MaxKey + 2 + 16 + signatureDigits

// stampPrefix begins the text form and names its version.
const stampPrefix = "croft1"

// Check returns nil if key, token, grant and signature have the right form.
// Otherwise it returns an error that matches [ErrInvalid] and names the fault.
func (s Stamp) Check() error {
	if err := CheckKey(s.Key); err != nil {
		return fmt.Errorf("stamp: %w", err)
	}
	if !s.Token.Valid() {
		return fmt.Errorf("stamp: %w token %d: it must be between 1 and %d", ErrInvalid, s.Token, MaxToken)
	}
	if !s.Grant.Valid() {
		return fmt.Errorf("stamp: %w grant %q: it must be 32 lower-case hex digits", ErrInvalid, s.Grant)
	}
	if _, _, ok := s.Signature.Split(); !ok && s.Signature != "" {
		return fmt.Errorf("stamp: %w signature: it must be 16 hex digits, a colon and 86 digits of base64url",
			ErrInvalid)
	}
	return nil
}

// String returns the stamp's text form: one printable ASCII word,
// "croft1:token:grant:seq:key", with the key percent-encoded. If the stamp is
// signed, a colon and the signature follow. [ParseStamp] reads it back.
func (s Stamp) String() string {
	text := fmt.Sprintf("%s:%d:%s:%d:%s", stampPrefix, s.Token, s.Grant, s.Seq, EscapeKey(s.Key))
	if s.Signature != "" {
		text += ":" + string(s.Signature)
	}
	return text
}

// ParseStamp reads the text form of a stamp. It accepts only what
// [Stamp.String] writes. Its errors match [ErrInvalid].
func ParseStamp(text string) (Stamp, error) {
	bad := func(why string) (Stamp, error) {
		return Stamp{}, fmt.Errorf("%w stamp %.80q: %s; pass CROFT_STAMP on unchanged", ErrInvalid, text, why)
	}
	if len(text) > MaxStamp {
		return Stamp{}, fmt.Errorf("%w stamp: %d bytes long, at most %d are possible; pass CROFT_STAMP on unchanged",
			ErrInvalid, len(text), MaxStamp)
	}
	parts := strings.Split(text, ":")
	// The text may be that of a lease, which holds a secret: do not repeat it.
	if parts[0] != stampPrefix {
		return Stamp{}, fmt.Errorf("%w stamp: it does not begin with %s; pass CROFT_STAMP on unchanged",
			ErrInvalid, stampPrefix)
	}
	if len(parts) != 5 && len(parts) != 7 {
		return bad("it does not have the form croft1:token:grant:seq:key or croft1:token:grant:seq:key:id:signature")
	}
	token, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil {
		return bad("its token is not a number")
	}
	seq, err := strconv.ParseUint(parts[3], 10, 64)
	if err != nil {
		return bad("its sequence is not a number")
	}
	key, err := UnescapeKey(parts[4])
	if err != nil {
		return bad("its key is not percent-encoded as it should be")
	}
	s := Stamp{Key: key, Token: Token(token), Grant: Grant(parts[2]), Seq: seq}
	s.Signature = Signature(strings.Join(parts[5:], ":"))
	if err := s.Check(); err != nil {
		return Stamp{}, err
	}
	if s.String() != text {
		return bad("it is not in the one form that is written")
	}
	return s, nil
}

// EscapeKey percent-encodes a key into one printable ASCII word without ":" or
// white space, for text forms that carry keys. [UnescapeKey] decodes it.
func EscapeKey(key string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(key) {
		c := key[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("-._~/", c) >= 0:
			b.WriteByte(c)
		default:
			b.WriteByte('%')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
		}
	}
	return b.String()
}

// UnescapeKey decodes what [EscapeKey] wrote. Its error matches [ErrInvalid].
// It does not check that the result is a valid key.
func UnescapeKey(text string) (string, error) {
	key, err := url.PathUnescape(text)
	if err != nil {
		return "", fmt.Errorf("%w escaped key: %w", ErrInvalid, err)
	}
	return key, nil
}
