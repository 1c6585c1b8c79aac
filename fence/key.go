package fence

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ErrInvalid is matched by every error about bad input. Nothing was attempted,
// nothing has changed, and the same input will fail again.
var ErrInvalid = errors.New("invalid")

// MaxKey is the length of the longest key, in bytes.
const MaxKey = 512

// CheckKey returns nil if key can name a lease, and otherwise an error that
// matches [ErrInvalid] and says why not.
//
// A key has the form "namespace/name…", or is a single segment. It is valid
// UTF-8 of at most [MaxKey] bytes, without control characters and without
// empty, "." or ".." segments. Keys are compared byte by byte.
func CheckKey(key string) error {
	switch {
	case key == "":
		return fmt.Errorf("%w key: it is empty; name the work, for example \"reports/daily\"", ErrInvalid)
	case len(key) > MaxKey:
		return fmt.Errorf("%w key: %d bytes long, at most %d are allowed; use a shorter name or a hash of it",
			ErrInvalid, len(key), MaxKey)
	case !utf8.ValidString(key):
		return fmt.Errorf("%w key %q: it is not valid UTF-8", ErrInvalid, key)
	}
	if i := strings.IndexFunc(key, unicode.IsControl); i >= 0 {
		return fmt.Errorf("%w key %q: control character at byte %d", ErrInvalid, key, i)
	}
	for segment := range strings.SplitSeq(key, "/") {
		switch segment {
		case "":
			return fmt.Errorf("%w key %q: empty segment; remove the leading, trailing or doubled slash",
				ErrInvalid, key)
		case ".", "..":
			return fmt.Errorf("%w key %q: a segment may not be %q", ErrInvalid, key, segment)
		}
	}
	return nil
}

// Namespace returns the part of a key before its first slash, or "" for a key
// of one segment. Metrics are labelled with it, because there are few
// namespaces and any number of keys.
func Namespace(key string) string {
	namespace, _, found := strings.Cut(key, "/")
	if !found {
		return ""
	}
	return namespace
}
