package httpfence

import (
	"cmp"
	"fmt"
	"net/url"
	"strings"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/admission"
)

// Rule says which requests are writes to which resource. Its text form is
//
//	[METHOD,METHOD… ]PATTERN[ as RESOURCE][ for KEY]
//
// PATTERN is a path of literal segments and {name}s. Each {name} stands for one
// segment. {name...} at the end stands for all that is left, one segment or
// more.
//
// RESOURCE names the resource, with the {name}s filled in. By default it is the
// pattern without the slashes around it, or "root".
//
// KEY is the only key whose stamps may write there. By default a resource
// belongs to the key that writes first.
//
// METHODs are those that count as writes under this rule. By default it is
// every method that is no read (see [Options.Reads]).
//
//	/orders/{id}                            one resource per order
//	/orders/{id}/{rest...} as orders/{id}   with everything below it
//	/{path...} as billing for jobs/billing  the whole service, for one job
//	GET,POST /jobs/{id}/run as jobs/{id}    a GET that has effects
type Rule struct {
	Methods  []string // in capitals; empty means every method that is no read
	Pattern  string   // begins with a slash
	Resource string   // empty means the default above
	Key      string   // empty means the key that writes first

	segments []string
}

// ParseRule reads the text form of a rule. Its error matches fence.ErrInvalid
// and names the mistake.
func ParseRule(text string) (Rule, error) {
	var r Rule
	words := strings.Fields(text)
	if len(words) > 0 && !strings.HasPrefix(words[0], "/") {
		r.Methods = strings.Split(words[0], ",")
		words = words[1:]
	}
	if len(words) > 0 {
		r.Pattern, words = words[0], words[1:]
	}
	var wrong string
	if r.Resource, r.Key, wrong = admission.ParseTarget(words); wrong != "" {
		return Rule{}, badRule(text, "%q is not understood", wrong)
	}
	if err := r.prepare(text); err != nil {
		return Rule{}, err
	}
	return r, nil
}

func badRule(text, format string, args ...any) error {
	return fmt.Errorf("%w rule %q: %s; write it as in \"/orders/{id} as orders/{id}\"", fence.ErrInvalid,
		text, fmt.Sprintf(format, args...))
}

// String returns the rule's text form.
func (r Rule) String() string {
	methods := ""
	if len(r.Methods) > 0 {
		methods = strings.Join(r.Methods, ",") + " "
	}
	return methods + r.Pattern + admission.TargetText(r.Resource, r.Key)
}

// prepare checks the rule and fills in what can be derived. The text is for its
// errors.
func (r *Rule) prepare(text string) error {
	if !strings.HasPrefix(r.Pattern, "/") {
		return badRule(text, "it has no pattern that begins with a slash")
	}
	for _, m := range r.Methods {
		if m == "" || strings.ToUpper(m) != m ||
			strings.ContainsFunc(m, func(c rune) bool { return c < '!' || c > '~' || c == '/' }) {
			return badRule(text, "%q is no method; they are written in capitals, with commas and without spaces", m)
		}
	}
	r.segments = strings.Split(r.Pattern[1:], "/")
	names := map[string]string{}
	for i, segment := range r.segments {
		name, rest, wild := wildcard(segment)
		switch {
		case !wild && strings.ContainsAny(segment, "{}"):
			return badRule(text, "%q: a {name} is a whole segment", segment)
		case !wild && segment == "" && i < len(r.segments)-1:
			return badRule(text, "it has an empty segment")
		case !wild:
			continue
		case name == "" || strings.ContainsAny(name, "{}. "):
			return badRule(text, "%q has no name that could be used", segment)
		case rest && i < len(r.segments)-1:
			return badRule(text, "%q must be the last segment", segment)
		case names[name] != "":
			return badRule(text, "{%s} is there twice", name)
		}
		names[name] = "x"
	}
	if r.Resource == "" {
		r.Resource = cmp.Or(strings.ReplaceAll(strings.Trim(r.Pattern, "/"), "...}", "}"), "root")
	}
	for _, template := range []string{r.Resource, r.Key} {
		if template == "" {
			continue
		}
		filled, err := fill(template, names)
		if err != nil {
			return badRule(text, "%v", err)
		}
		if err := fence.CheckKey(filled); err != nil {
			return badRule(text, "%v", err)
		}
	}
	return nil
}

// wildcard parses a {name} or {name...} segment of a pattern.
func wildcard(segment string) (name string, rest, is bool) {
	if !strings.HasPrefix(segment, "{") || !strings.HasSuffix(segment, "}") {
		return "", false, false
	}
	name, rest = strings.CutSuffix(segment[1:len(segment)-1], "...")
	return name, rest, true
}

// fill replaces the {name}s of a template.
func fill(template string, values map[string]string) (string, error) {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(template, "{")
		b.WriteString(before)
		if !found {
			return b.String(), nil
		}
		name, tail, closed := strings.Cut(after, "}")
		value, known := values[name]
		if !closed || !known {
			return "", fmt.Errorf("{%s} is not in the pattern", name)
		}
		b.WriteString(value)
		template = tail
	}
}

// match matches the segments of a path, still escaped, with the pattern. It
// returns the values of the {name}s.
func (r *Rule) match(path []string) (map[string]string, bool) {
	values := map[string]string{}
	for i, segment := range r.segments {
		name, rest, wild := wildcard(segment)
		if i >= len(path) {
			return nil, false
		}
		part := path[i]
		if rest {
			part = strings.Join(path[i:], "/")
		}
		value, err := url.PathUnescape(part)
		switch {
		case err != nil, wild && value == "", !wild && value != segment:
			return nil, false
		case wild:
			values[name] = value
		}
		if rest {
			return values, true
		}
	}
	return values, len(path) == len(r.segments)
}
