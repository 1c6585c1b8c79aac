package httpfence

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/croft-dev/croft/fence"
)

// override are headers by which some frameworks are told another method than the one on the request line.
var override = []string{"x-http-method-override", "x-http-method", "x-method-override"}

// overridden reports whether a request has such a header. Services that see headers as variables take an underscore for a hyphen.
func overridden(r *http.Request) bool {
	for name := range r.Header {
		if slices.Contains(override, strings.ReplaceAll(strings.ToLower(name), "_", "-")) {
			return true
		}
	}
	return false
}

// isRead reports whether a request's method is one that writes nothing.
func isRead(r *http.Request, reads []string) bool {
	return slices.Contains(reads, r.Method) && !overridden(r)
}

// clean refuses a path that a service might take for another than the gate does: two names of one resource would have two marks.
func clean(escaped string) error {
	bad := func(why string) error {
		return fmt.Errorf("%w path %q: %s, so it is not certain which resource is meant; send the plain path", fence.ErrInvalid, escaped, why)
	}
	if !strings.HasPrefix(escaped, "/") {
		return bad("it does not begin with a slash")
	}
	for i, segment := range strings.Split(escaped[1:], "/") {
		plain, err := url.PathUnescape(segment)
		switch {
		case err != nil:
			return bad("it is not percent-encoded as it should be")
		case plain == "." || plain == "..":
			return bad("it has the segment " + plain)
		case plain == "" && i < strings.Count(escaped, "/")-1:
			return bad("it has an empty segment")
		case strings.ContainsAny(plain, `/\;`):
			return bad("it has an encoded slash, a backslash or a semicolon")
		}
	}
	return nil
}

// target is what a request writes to; resource is "" if it is a read.
type target struct {
	resource string
	key      string // the only one allowed; "" for any
}

// classify finds out what a request is. Its error refuses a write that no rule covers.
func (o *Options) classify(r *http.Request) (target, error) {
	escaped := r.URL.EscapedPath()
	path := strings.Split(strings.TrimPrefix(escaped, "/"), "/")
	read := isRead(r, o.Reads)
	for i := range o.Exempt {
		if rule := &o.Exempt[i]; len(rule.Methods) == 0 || slices.Contains(rule.Methods, r.Method) && !overridden(r) {
			if _, ok := rule.match(path); ok && clean(escaped) == nil {
				return target{}, nil
			}
		}
	}
	for i := range o.Rules {
		rule := &o.Rules[i]
		if len(rule.Methods) == 0 && read || len(rule.Methods) > 0 && !rule.names(r) {
			continue
		}
		values, ok := rule.match(path)
		if !ok {
			continue
		}
		if err := clean(escaped); err != nil {
			return target{}, err
		}
		return rule.target(values)
	}
	// A read may be written as its sender likes, unless its method is a write somewhere.
	named := slices.ContainsFunc(o.Rules, func(rule Rule) bool { return rule.names(r) })
	if read && !named {
		return target{}, nil
	}
	if err := clean(escaped); err != nil {
		return target{}, err
	}
	if read {
		return target{}, nil
	}
	return target{}, &refusal{status: http.StatusForbidden, code: "invalid", err: fmt.Errorf(
		"%w request: no rule says which resource %s %s writes to, so it is refused; add a rule, or exempt it if it writes nothing", fence.ErrInvalid, r.Method, escaped)}
}

// names reports whether the rule names the request's method, if that is certain. Many services answer HEAD with what they do for GET, effects included.
func (r *Rule) names(req *http.Request) bool {
	method := req.Method
	return (slices.Contains(r.Methods, method) || method == http.MethodHead && slices.Contains(r.Methods, http.MethodGet)) && !overridden(req)
}

func (r *Rule) target(values map[string]string) (target, error) {
	var t target
	for _, each := range []struct {
		template string
		to       *string
	}{{r.Resource, &t.resource}, {r.Key, &t.key}} {
		if each.template == "" {
			continue
		}
		filled, err := fill(each.template, values)
		if err == nil {
			err = fence.CheckKey(filled)
		}
		if err != nil {
			return target{}, fmt.Errorf("the resource cannot be named: %w", err)
		}
		*each.to = filled
	}
	return t, nil
}
