package mcp

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/admission"
)

// Rule says which calls are writes to which resource. Its text form is
//
//	TOOL[ as RESOURCE][ for KEY]
//
// TOOL is the name of a tool, or * for every tool.
//
// RESOURCE names the resource. Each {argument} in it stands for the value of
// that argument of the call, a string or an integer. By default it is the name
// of the tool, or "tools" for *.
//
// KEY is the only key whose stamps may write there. It may have {argument}s,
// too. By default a resource belongs to the key that writes first.
//
//	write_file as files              one resource, whatever the file
//	update_order as orders/{id}      one resource per order
//	* as billing for jobs/billing    every tool, for one job
type Rule struct {
	Tool     string
	Resource string // empty means the default above
	Key      string // empty means the key that writes first
}

// everyTool is the Tool of a rule for all tools.
const everyTool = "*"

// resourcePrefix begins the names of all resources, so that none is taken for a
// resource of croft proxy.
const resourcePrefix = "mcp/"

// ParseRule reads the text form of a rule. Its error matches fence.ErrInvalid
// and names the mistake.
func ParseRule(text string) (Rule, error) {
	var r Rule
	words := strings.Fields(text)
	if len(words) > 0 {
		r.Tool, words = words[0], words[1:]
	}
	var wrong string
	if r.Resource, r.Key, wrong = admission.ParseTarget(words); wrong != "" {
		return Rule{}, badRule(text, "%q is not understood", wrong)
	}
	return r.prepared(text)
}

func badRule(text, format string, args ...any) error {
	return fmt.Errorf("%w rule %q: %s; write it as in \"update_order as orders/{id}\"", fence.ErrInvalid,
		text, fmt.Sprintf(format, args...))
}

// String returns the rule's text form.
func (r Rule) String() string {
	return r.Tool + admission.TargetText(r.Resource, r.Key)
}

// prepared checks the rule and fills in the default. The text is for its
// errors.
func (r Rule) prepared(text string) (Rule, error) {
	if r.Tool == "" || strings.ContainsAny(r.Tool, "{}") {
		return Rule{}, badRule(text, "it does not begin with the name of a tool, or *")
	}
	if r.Resource == "" {
		r.Resource = r.Tool
		if r.Tool == everyTool {
			r.Resource = "tools"
		}
	}
	for _, template := range []string{r.Resource, cmp.Or(r.Key, "x")} {
		example, err := fill(template, func(name string) (string, error) {
			if name == "" || strings.ContainsAny(name, "{ ") {
				return "", fmt.Errorf("{%s} does not name an argument", name)
			}
			return "x", nil
		})
		if err == nil {
			err = fence.CheckKey(resourcePrefix + example)
		}
		if err != nil {
			return Rule{}, badRule(text, "%v", err)
		}
	}
	return r, nil
}

// fill replaces the {argument}s of a template.
func fill(template string, value func(name string) (string, error)) (string, error) {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(template, "{")
		b.WriteString(before)
		if !found {
			return b.String(), nil
		}
		name, tail, closed := strings.Cut(after, "}")
		if !closed {
			return "", errors.New("a brace is not closed")
		}
		filled, err := value(name)
		if err != nil {
			return "", err
		}
		b.WriteString(filled)
		template = tail
	}
}

// target returns the resource to which a call writes, and the only key that may
// write there, or "".
func (r Rule) target(arguments object) (resource, key string, err error) {
	value := func(name string) (string, error) { return argument(arguments, name) }
	if resource, err = fill(resourcePrefix+r.Resource, value); err == nil {
		err = fence.CheckKey(resource)
	}
	if err == nil && r.Key != "" {
		if key, err = fill(r.Key, value); err == nil {
			err = fence.CheckKey(key)
		}
	}
	if err != nil {
		return "", "", fmt.Errorf("%w call: its resource cannot be named by the rule %q: %w", fence.ErrInvalid, r, err)
	}
	return resource, key, nil
}

// exact bounds the integers that every parser reads exactly. Larger ones could
// name two resources here that are one to the server.
const exact = 1 << 53

// argument returns an argument's value as a part of a name.
func argument(arguments object, name string) (string, error) {
	var found any
	for _, m := range arguments {
		if m.name != name && folded(m.name) == folded(name) {
			return "", fmt.Errorf("the arguments %q and %q differ only in case", m.name, name)
		}
		if m.name == name {
			found = m.value
		}
	}
	switch v := found.(type) {
	case string:
		if v == "" {
			return "", fmt.Errorf("the argument %q is empty", name)
		}
		return v, nil
	case json.Number:
		if n, err := strconv.ParseInt(string(v), 10, 64); err == nil && integer.MatchString(string(v)) &&
			n > -exact && n < exact {
			return string(v), nil
		}
	}
	return "", fmt.Errorf("the argument %q is neither a string nor an integer below 2^53", name)
}
