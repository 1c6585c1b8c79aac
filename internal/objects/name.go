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

// maxPrefix leaves room for the rest of a name, which the services bound at 1,024 bytes.
const maxPrefix = 512

// Layout names a store's objects. All of them lie under its prefix; stores with different prefixes share nothing.
type Layout struct{ prefix string }

// NewLayout makes a layout from a prefix as users write it: "team/croft", with or without slashes at its ends, or empty for the whole bucket.
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

// Prefix is what all names begin with: empty, or ending with a slash.
func (l Layout) Prefix() string { return l.prefix }

// Records is what the names of all records begin with.
func (l Layout) Records() string { return l.prefix + "leases/" }

// Record names the object of a key: by its hash, so that every key is a good name and neighbours in name are not neighbours in the service.
func (l Layout) Record(key string) string {
	sum := sha256.Sum256([]byte(key))
	return l.Records() + hex.EncodeToString(sum[:]) + ".json"
}

// IsRecord tells a record's name from those of what others put beside them.
func (l Layout) IsRecord(name string) bool {
	hash, ok := strings.CutPrefix(name, l.Records())
	if !ok {
		return false
	}
	hash, ok = strings.CutSuffix(hash, ".json")
	return ok && len(hash) == 2*sha256.Size && strings.Trim(hash, "0123456789abcdef") == ""
}

// Probe names the object that says when conditional writes were last tried over an endpoint.
func (l Layout) Probe(endpoint string) string {
	sum := sha256.Sum256([]byte(endpoint))
	return l.prefix + "probes/" + hex.EncodeToString(sum[:8]) + ".json"
}

// Trial names an object to try conditional writes on; every call gives another.
func (l Layout) Trial() string { return l.prefix + "probes/trial-" + NewNonce() }
