package httpfence

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"strings"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
)

// placeholder is what a resource's name takes the place of in the target of its mark.
const placeholder = "{resource}"

// longestName is the longest name of a resource that becomes a file's name as it is: file systems end at 255 bytes, and a guard adds some.
const longestName = 150

// MarksAt keeps marks at guards that a template names: a target as for guard.Open, with {resource} where the name of the resource goes. The guards' backends
// must have been imported.
//
//	/var/lib/croft/marks/{resource}         a file each (only its sidecar is ever made)
//	redis://host:6379/0#proxy:{resource}    a hash each
//	postgres://host/db#proxy/{resource}     a row each
//
// What is in the place of {resource} is escaped as the target needs it. The error matches fence.ErrInvalid.
func MarksAt(template string) (func(ctx context.Context, resource string) (guard.Guard, error), error) {
	if strings.Count(template, placeholder) != 1 {
		return nil, fmt.Errorf("%w place for marks: it must have %s in it, once, or all resources would share one mark; for example /var/lib/croft/marks/%s", fence.ErrInvalid, placeholder, placeholder)
	}
	return func(ctx context.Context, resource string) (guard.Guard, error) {
		return guard.Open(ctx, markTarget(template, resource))
	}, nil
}

// markTarget is the target of the guard that keeps a resource's mark.
func markTarget(template, resource string) string {
	scheme, _, isURL := strings.Cut(template, "://")
	isURL = isURL && !strings.Contains(scheme, "/")
	name := fence.EscapeKey(resource)
	if !isURL || scheme == "file" { // one name in one folder, whatever slashes it has
		name = strings.ReplaceAll(name, "/", "%2F")
		if len(name) > longestName {
			sum := sha256.Sum256([]byte(resource))
			name = name[:longestName-33] + "-" + hex.EncodeToString(sum[:16])
		}
		if isURL {
			name = url.PathEscape(name)
		}
	}
	return strings.Replace(template, placeholder, name, 1)
}
