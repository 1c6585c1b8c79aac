// Package backends lists the backends of croft. Each registers its URL schemes.
//
// The directory, files and the client of croft serve are in every croft. The
// others have a file each, and the build tag croft_no_NAME leaves a backend and
// its client library out.
package backends

import (
	"fmt"
	"slices"

	_ "github.com/croft-dev/croft/backend/dir"
	_ "github.com/croft-dev/croft/backend/file"
	_ "github.com/croft-dev/croft/backend/remote"
	"github.com/croft-dev/croft/internal/registry"
)

// optional are the backends that a build tag can leave out.
var optional = []string{"etcd", "gcs", "postgres", "redis", "s3", "sqlite"}

// in has the backends of this croft. The file of an optional one calls has.
var in = []string{"dir", "file", "remote"}

// Schemas returns the tables of the engines whose users may create them by
// hand.
var Schemas = map[string]func() string{}

func init() {
	for _, name := range optional { // the registry asks only about those that are not in
		registry.LeaveOut(name, advice(name))
	}
}

// has adds a backend to those of this croft.
func has(name string) { in = append(in, name) }

// In lists the backends of this croft, sorted.
func In() []string { return slices.Sorted(slices.Values(in)) }

// LeftOut lists the backends that this croft was built without, sorted.
func LeftOut() []string {
	return slices.DeleteFunc(slices.Clone(optional), func(name string) bool { return slices.Contains(in, name) })
}

// HowToGet says how to get a backend that was left out. It is empty for all
// other names.
func HowToGet(name string) string {
	if !slices.Contains(LeftOut(), name) {
		return ""
	}
	return advice(name)
}

func advice(name string) string {
	return fmt.Sprintf("this croft was built without %s: install the whole croft, or build it without the tag "+
		"croft_no_%s", name, name)
}
