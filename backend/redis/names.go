package redis

import (
	"strings"

	"github.com/croft-dev/croft/fence"
)

// DefaultPrefix begins the names of all Redis keys of a store, unless
// Options.Prefix is set.
const DefaultPrefix = "croft:"

// naming makes the names of Redis keys and channels. All keys of one namespace
// have the same hash tag and so live on one node of a cluster:
//
//	croft:{jobs}:k:jobs/daily   a key's record, and the channel of its changes
//	croft:{jobs}:i              the namespace's index
//	croft:acts                  the channel of operators' acts on all keys
type naming string

var escapeTag = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")

// newNaming makes names with a prefix. It escapes braces in the prefix: Redis
// would take them for the hash tag.
func newNaming(prefix string) naming {
	if prefix == "" {
		prefix = DefaultPrefix
	}
	return naming(escapeTag.Replace(prefix))
}

// root returns the beginning of all names of a namespace. Keys without a
// namespace get the tag "%", because Redis ignores an empty tag. No namespace
// has that tag.
func (n naming) root(namespace string) string {
	tag := "%"
	if namespace != "" {
		tag = escapeTag.Replace(namespace)
	}
	return string(n) + "{" + tag + "}:"
}

func (n naming) index(namespace string) string { return n.root(namespace) + "i" }

func (n naming) record(key string) string { return n.root(fence.Namespace(key)) + "k:" + key }

// indexOf returns the index that lists a record.
func (n naming) indexOf(record string) string {
	root, _, _ := strings.Cut(record[len(n):], "}:k:")
	return string(n) + root + "}:i"
}

// acts returns the channel on which apply.lua announces operators' acts.
func (n naming) acts() string { return string(n) + "acts" }

var escapePattern = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)

// indexes returns a pattern for SCAN that finds the indexes of namespaces that
// begin with start.
func (n naming) indexes(start string) string {
	return escapePattern.Replace(string(n)+"{"+escapeTag.Replace(start)) + "*}:i"
}

// isIndex reports whether a name that the pattern has found is an index. It may
// also be the record of a key that ends in "}:i".
func (n naming) isIndex(name string) bool {
	tag, ok := strings.CutPrefix(name, string(n)+"{")
	if !ok {
		return false
	}
	tag, ok = strings.CutSuffix(tag, "}:i")
	return ok && !strings.Contains(tag, "}")
}
