package objects

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/croft-dev/croft/fence"
)

// maxPrefix leaves room for the rest of a name. The services allow 1,024 bytes.
const maxPrefix = 512

// Layout names a store's objects. All names begin with its prefix. Stores with
// different prefixes share nothing.
type Layout struct{ prefix string }

// NewLayout makes a layout from a prefix as users write it: "team/croft", with
// or without slashes at its ends. An empty prefix means the whole bucket.
func NewLayout(prefix string) (Layout, error) {
	prefix = strings.Trim(prefix, "/")
	bad := func(why string) error {
		return fmt.Errorf("%w prefix %.80q: %s", fence.ErrInvalid, prefix, why)
	}
	switch {
	case prefix == "":
		return Layout{}, nil
	case len(prefix) > maxPrefix:
		return Layout{}, bad(fmt.Sprintf("%d bytes long, at most %d are allowed", len(prefix), maxPrefix))
	case !utf8.ValidString(prefix) || strings.IndexFunc(prefix, unicode.IsControl) >= 0:
		return Layout{}, bad("it has a control character or is not valid UTF-8")
	}
	for part := range strings.SplitSeq(prefix, "/") {
		if part == "" || part == "." || part == ".." {
			return Layout{}, bad("it has an empty, . or .. part, which some clients change on the way")
		}
	}
	return Layout{prefix + "/"}, nil
}

// Prefix returns the beginning of all names. It is empty, or ends with a slash.
func (l Layout) Prefix() string { return l.prefix }

// Records returns the beginning of the names of all records.
func (l Layout) Records() string { return l.prefix + "leases/" }

// Record names the object of a key by the key's hash. So every key is a good
// name, and keys with similar names are not neighbours in the service.
func (l Layout) Record(key string) string {
	sum := sha256.Sum256([]byte(key))
	return l.Records() + hex.EncodeToString(sum[:]) + ".json"
}

// IsRecord reports whether a name is that of a record. Other objects may lie
// beside records.
func (l Layout) IsRecord(name string) bool {
	hash, ok := strings.CutPrefix(name, l.Records())
	if !ok {
		return false
	}
	hash, ok = strings.CutSuffix(hash, ".json")
	return ok && len(hash) == 2*sha256.Size && strings.Trim(hash, "0123456789abcdef") == ""
}

// Probe names the object that says when conditional writes were last tried over
// an endpoint.
func (l Layout) Probe(endpoint string) string {
	sum := sha256.Sum256([]byte(endpoint))
	return l.prefix + "probes/" + hex.EncodeToString(sum[:8]) + ".json"
}

// Trial names an object for a trial of conditional writes. Every call returns
// another name.
func (l Layout) Trial() string { return l.prefix + "probes/trial-" + NewNonce() }
