package admission

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
)

// placeholder stands for the resource's name in a template of MarksAt.
const placeholder = "{resource}"

// longestName is the longest file name that a resource's name becomes
// unchanged. File systems end at 255 bytes, and a guard adds some.
const longestName = 150

// MarksAt returns a function for Options.Marks that opens guards named by a
// template. The template is a target as for guard.Open, with {resource} for the
// name of the resource. The program must import the backends of these guards.
// The error of MarksAt matches fence.ErrInvalid.
//
//	/var/lib/croft/marks/{resource}         a file each
//	redis://host:6379/0#proxy:{resource}    a hash each
//	postgres://host/db#proxy/{resource}     a row each
//
// The name is escaped as the target needs it. Of the files only their sidecars,
// which hold the marks, are ever made.
func MarksAt(template string) (func(ctx context.Context, resource string) (guard.Guard, error), error) {
	if strings.Count(template, placeholder) != 1 {
		return nil, fmt.Errorf("%w target for marks: it must have %s in it, once, "+
			"or all resources would share one mark; for example /var/lib/croft/marks/%s",
			fence.ErrInvalid, placeholder, placeholder)
	}
	return func(ctx context.Context, resource string) (guard.Guard, error) {
		return guard.Open(ctx, markTarget(template, resource))
	}, nil
}

// MarkFile returns the file in which a proxy with the marks "dir/{resource}"
// keeps the mark of a resource.
func MarkFile(dir, resource string) string {
	return filepath.Join(dir, markTarget(placeholder, resource))
}

// markTarget returns the target of the guard that keeps a resource's mark.
func markTarget(template, resource string) string {
	scheme, _, isURL := strings.Cut(template, "://")
	isURL = isURL && !strings.Contains(scheme, "/")
	name := fence.EscapeKey(resource)
	if !isURL || scheme == "file" { // one file name, even if the resource's name has slashes
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
