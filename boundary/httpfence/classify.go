package httpfence

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/admission"
)

// steering lists headers that tell some services another path, method or length
// than the proxy has seen. Every name that begins with x-http-method does so,
// too.
var steering = []string{
	"x-method-override", "x-original-url", "x-rewrite-url", "x-override-url", "content-length",
	"transfer-encoding",
}

// steers returns the name of such a header, or "". Some services read headers
// as variables, and take an underscore, or any other sign, for a hyphen. The
// server has checked the real Content-Length.
func steers(h http.Header) string {
	for name := range h {
		plain := strings.Map(func(c rune) rune {
			if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
				return c
			}
			return '-'
		}, strings.ToLower(name))
		if name != "Content-Length" && (slices.Contains(steering, plain) || strings.HasPrefix(plain, "x-http-method")) {
			return name
		}
	}
	return ""
}

// steered returns the refusal of a request with such a header.
func steered(name string) error {
	return fmt.Errorf("%w request: the header %q may tell the service another path, method or length "+
		"than the request has, so it is not certain what is meant; leave it out", fence.ErrInvalid, name)
}

// clean refuses a path that a service might read differently from the gate.
// Otherwise two names of one resource would have two marks.
func clean(escaped string) error {
	bad := func(why string) error {
		return fmt.Errorf("%w path %q: %s, so it is not certain which resource is meant; send the plain path",
			fence.ErrInvalid, escaped, why)
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
		case encoded.MatchString(plain):
			return bad("it is percent-encoded twice")
		case !utf8.ValidString(plain) || strings.ContainsFunc(plain, unicode.IsControl):
			return bad("it is not plain UTF-8")
		}
	}
	return nil
}

// encoded matches a percent-encoded octet, which a service would decode if it
// decodes once more.
var encoded = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)

// target says what a request writes to. If resource is empty, the request is a
// read.
type target struct {
	resource string
	key      string // the only key allowed; "" allows any
	exempt   bool   // a rule says that the request is a read
}

// classify finds out what a request writes to. Its error refuses a write that
// no rule covers.
func (o *Options) classify(r *http.Request) (target, error) {
	if name := steers(r.Header); name != "" {
		return target{}, steered(name)
	}
	escaped := r.URL.EscapedPath()
	path := strings.Split(strings.TrimPrefix(escaped, "/"), "/")
	read := slices.Contains(o.Reads, r.Method)
	for i := range o.Exempt {
		if rule := &o.Exempt[i]; len(rule.Methods) == 0 || slices.Contains(rule.Methods, r.Method) {
			if _, ok := rule.match(path); ok && clean(escaped) == nil {
				return target{exempt: true}, nil
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
	// The path of a read may have any form, unless a rule makes its method a
	// write.
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
	return target{}, &admission.Refusal{Status: http.StatusForbidden, Code: "invalid", Err: fmt.Errorf(
		"%w request: no rule says which resource %s %s writes to, so it is refused; "+
			"add a rule, or exempt it if it writes nothing", fence.ErrInvalid, r.Method, escaped)}
}

// names reports whether the rule names the request's method. GET stands for
// HEAD, too: many services do the same for both, effects included.
func (r *Rule) names(req *http.Request) bool {
	method := req.Method
	return slices.Contains(r.Methods, method) || method == http.MethodHead && slices.Contains(r.Methods, http.MethodGet)
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
