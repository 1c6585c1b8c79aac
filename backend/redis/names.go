package redis

import (
	"strings"

	"github.com/croft-dev/croft/fence"
)

// DefaultPrefix is what every key of a store begins with, unless Options.Prefix says otherwise.
const DefaultPrefix = "croft:"

// naming makes the names of Redis keys and channels. All keys of one namespace
// have the same hash tag and so live on one node of a cluster:
//
//	croft:{jobs}:k:jobs/daily   the record of a key; also the channel of its changes
//	croft:{jobs}:i              the namespace's index
//	croft:acts                  the channel of operators' acts on all keys
type naming string

var escapeTag = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")

// newNaming makes names with a prefix. Braces in it would be taken for the hash tag.
func newNaming(prefix string) naming {
	if prefix == "" {
		prefix = DefaultPrefix
	}
	return naming(escapeTag.Replace(prefix))
}

// root is what the names of a namespace begin with. Keys without a namespace have the tag "%", which no other has: Redis takes an empty tag for none.
func (n naming) root(namespace string) string {
	tag := "%"
	if namespace != "" {
		tag = escapeTag.Replace(namespace)
	}
	return string(n) + "{" + tag + "}:"
}

func (n naming) index(namespace string) string { return n.root(namespace) + "i" }

func (n naming) record(key string) string { return n.root(fence.Namespace(key)) + "k:" + key }

// indexOf is the index that a record is listed in.
func (n naming) indexOf(record string) string {
	root, _, _ := strings.Cut(record[len(n):], "}:k:")
	return string(n) + root + "}:i"
}

// acts is the channel on which apply.lua tells of operators' acts.
func (n naming) acts() string { return string(n) + "acts" }

var escapePattern = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)

// indexes is a pattern of SCAN that finds the indexes of the namespaces that begin with start.
func (n naming) indexes(start string) string {
	return escapePattern.Replace(string(n)+"{"+escapeTag.Replace(start)) + "*}:i"
}

// isIndex tells an index from what else the pattern finds, such as the record of a key that ends in "}:i".
func (n naming) isIndex(name string) bool {
	tag, ok := strings.CutPrefix(name, string(n)+"{")
	if !ok {
		return false
	}
	tag, ok = strings.CutSuffix(tag, "}:i")
	return ok && !strings.Contains(tag, "}")
}
