package access

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/server"
	"github.com/croft-dev/croft/tenure"
)

// MaxSize is the size of the largest policy that [Parse] reads.
const MaxSize = 1 << 20

// Policy says who may what. It is a [server.Access].
type Policy struct {
	tokens       []token
	certificates []certificate
	issued       []issued
	rules        []rule
	verifier     Verifier // of the tokens of issuers; may be nil
}

var _ server.Access = (*Policy)(nil)

type token struct {
	name string
	hash [sha256.Size]byte
}

type certificate struct {
	name        string
	kind, value string
}

// rule allows something.
type rule struct {
	subject string
	verbs   []server.Verb
	keys    string
	line    int
}

// everybody and everything are subjects and keys.
const (
	everybody  = "*"
	everything = "*"
)

// Parse reads a policy. Its error matches fence.ErrInvalid and names the line.
func Parse(text []byte) (*Policy, error) {
	if len(text) > MaxSize {
		return nil, fmt.Errorf("%w policy: it has %d bytes, at most %d are allowed",
			fence.ErrInvalid, len(text), MaxSize)
	}
	if !utf8.Valid(text) {
		return nil, fmt.Errorf("%w policy: it is not valid UTF-8", fence.ErrInvalid)
	}
	p := &Policy{}
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		if err := p.read(strings.TrimSpace(line), number); err != nil {
			return nil, fmt.Errorf("%w policy: line %d: %w", fence.ErrInvalid, number, err)
		}
	}
	if err := p.check(); err != nil {
		return nil, err
	}
	return p, nil
}

// read reads one line.
func (p *Policy) read(line string, number int) error {
	words := strings.Fields(line)
	switch {
	case len(words) == 0 || strings.HasPrefix(words[0], "#"):
		return nil
	case len(words) > 1 && words[1] == "may":
		return p.readRule(line, words[0], number)
	case words[0] == "token" && len(words) == 3:
		return p.readToken(words[1], words[2])
	case words[0] == "certificate" && len(words) == 3:
		return p.readCertificate(words[1], words[2])
	case words[0] == "oidc" && len(words) == 6:
		return p.readIssued(words[1:])
	}
	return fmt.Errorf(`it is none of "token NAME sha256:HEX", "certificate NAME dns:HOST", ` +
		`"oidc NAME ISSUER AUDIENCE CLAIM VALUE" and "SUBJECT may VERBS on KEYS"`)
}

func (p *Policy) readToken(name, value string) error {
	if err := checkName(name); err != nil {
		return err
	}
	digits, ok := strings.CutPrefix(value, "sha256:")
	hash, err := hex.DecodeString(digits)
	if !ok || err != nil || len(hash) != sha256.Size {
		return fmt.Errorf("a token is written as sha256: and 64 hex digits, which printf %%s TOKEN | sha256sum prints")
	}
	t := token{name: name, hash: [sha256.Size]byte(hash)}
	if slices.ContainsFunc(p.tokens, func(other token) bool { return other.hash == t.hash }) {
		return fmt.Errorf("the same token is listed twice")
	}
	p.tokens = append(p.tokens, t)
	return nil
}

func (p *Policy) readCertificate(name, value string) error {
	if err := checkName(name); err != nil {
		return err
	}
	kind, value, ok := strings.Cut(value, ":")
	if !ok || value == "" || !slices.Contains([]string{"dns", "email", "uri", "ip"}, kind) {
		return fmt.Errorf("an alternative name is written as dns:HOST, email:ADDRESS, uri:URI or ip:ADDRESS")
	}
	if kind == "ip" {
		addr, err := netip.ParseAddr(value)
		if err != nil {
			return fmt.Errorf("%q is no IP address", value)
		}
		value = addr.Unmap().String()
	}
	c := certificate{name, kind, value}
	if slices.ContainsFunc(p.certificates, func(o certificate) bool { return o.kind == kind && o.value == value }) {
		return fmt.Errorf("the same alternative name is listed twice")
	}
	p.certificates = append(p.certificates, c)
	return nil
}

// readRule reads "SUBJECT may VERBS on KEYS". The keys may contain spaces.
func (p *Policy) readRule(line, subject string, number int) error {
	_, rest, _ := strings.Cut(strings.TrimPrefix(line, subject), "may")
	verbs, keys, ok := strings.Cut(rest, " on ")
	keys = strings.TrimSpace(keys)
	if !ok || keys == "" {
		return fmt.Errorf(`it does not say on which keys: write "SUBJECT may VERBS on KEYS"`)
	}
	r := rule{subject: subject, keys: keys, line: number}
	if subject != everybody {
		if err := checkName(subject); err != nil {
			return err
		}
	}
	if keys != everything {
		if err := fence.CheckKey(strings.TrimSuffix(keys, "/")); err != nil {
			return fmt.Errorf("%q is no key, no prefix that ends with a slash, and not *", keys)
		}
	}
	for word := range strings.SplitSeq(verbs, ",") {
		verb := server.Verb(strings.TrimSpace(word))
		switch verb {
		case server.Read, server.Acquire, server.Work, server.Add, server.Operate:
			r.verbs = append(r.verbs, verb)
		default:
			return fmt.Errorf("%q is no verb; write read, acquire, work, add or operate, with commas between them",
				verb)
		}
	}
	p.rules = append(p.rules, r)
	return nil
}

// checkName refuses a name that no owner of a record can have, or that would
// look like a rule's own words.
func checkName(name string) error {
	if name == everybody || len(name) > tenure.MaxName || strings.IndexFunc(name, unicode.IsControl) >= 0 {
		return fmt.Errorf("%.40q is no name of an identity: it is *, too long, or has control characters", name)
	}
	return nil
}

// check finds rules about names that nobody has. They are mostly mistyped.
func (p *Policy) check() error {
	for _, r := range p.rules {
		if r.subject != everybody && !p.knows(r.subject) {
			return fmt.Errorf("%w policy: line %d: no token, certificate or claim is named %s",
				fence.ErrInvalid, r.line, r.subject)
		}
	}
	return nil
}

// knows reports whether somebody can have a name.
func (p *Policy) knows(name string) bool {
	return slices.ContainsFunc(p.tokens, func(t token) bool { return t.name == name }) ||
		slices.ContainsFunc(p.certificates, func(c certificate) bool { return c.name == name }) ||
		slices.ContainsFunc(p.issued, func(i issued) bool { return i.name == name })
}

// May reports whether a rule allows an identity to do something with a key. The
// empty key stands for all keys together.
func (p *Policy) May(id server.Identity, verb server.Verb, key string) bool {
	_, allowed := p.find(id.Name, verb, key)
	return allowed
}

// find returns the first rule that allows it.
func (p *Policy) find(name string, verb server.Verb, key string) (rule, bool) {
	for _, r := range p.rules {
		if name != "" && (r.subject == everybody || r.subject == name) && r.covers(key) &&
			(verb == server.Read || slices.Contains(r.verbs, verb)) {
			return r, true
		}
	}
	return rule{}, false
}

func (r rule) covers(key string) bool {
	switch {
	case r.keys == everything:
		return true
	case strings.HasSuffix(r.keys, "/"):
		return strings.HasPrefix(key, r.keys)
	}
	return key == r.keys
}

// Decision is the answer to a question about a policy.
type Decision struct {
	Allowed bool
	// Line is the line of the rule that allows it, and Rule its text. They are
	// 0 and "" if no rule does.
	Line int
	Rule string
	// Known is false if no token, certificate or claim has the name.
	Known bool
}

// Explain decides whether an identity may do something with a key, and says by
// which rule.
func (p *Policy) Explain(name string, verb server.Verb, key string) Decision {
	d := Decision{Known: p.knows(name)}
	if !d.Known {
		return d
	}
	r, allowed := p.find(name, verb, key)
	if !allowed {
		return d
	}
	verbs := make([]string, len(r.verbs))
	for i, v := range r.verbs {
		verbs[i] = string(v)
	}
	d.Allowed, d.Line = true, r.line
	d.Rule = fmt.Sprintf("%s may %s on %s", r.subject, strings.Join(verbs, ", "), r.keys)
	return d
}
