package mcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/textproto"
	"regexp"
	"slices"
	"strings"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard/gate"
)

// Credential is a secret of the upstream. A [Proxy] sends it as a header of
// every request. For [Serve] it is a variable of the upstream's environment,
// where the caller has put it. Both hide it in messages for the client, should
// the upstream repeat it.
type Credential struct{ Name, Value string }

// shortestSecret is the length of the shortest credential. A shorter one could
// not be hidden, because it is a part of other words.
const shortestSecret = 8

// These match names of credentials.
var (
	headerName   = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// ParseHeader reads a credential for a [Proxy]: a line with a header, as in
// Authorization: Bearer TOKEN. Its error matches fence.ErrInvalid, and repeats
// nothing of the text.
func ParseHeader(text string) (Credential, error) {
	return parseCredential(text, ":", headerName, "a header, as in Authorization: Bearer TOKEN")
}

// ParseVariable reads a credential for [Serve]: a line with a variable, as in
// API_KEY=SECRET. Its error matches fence.ErrInvalid, and repeats nothing of
// the text.
func ParseVariable(text string) (Credential, error) {
	return parseCredential(text, "=", variableName, "a variable, as in API_KEY=SECRET")
}

func parseCredential(text, sign string, names *regexp.Regexp, form string) (Credential, error) {
	text = strings.TrimRight(text, "\r\n")
	name, value, found := strings.Cut(text, sign)
	if sign == ":" {
		value = strings.TrimSpace(value)
	}
	c := Credential{name, value}
	if !found || !names.MatchString(name) {
		return Credential{}, fmt.Errorf("%w credential: it is one line with %s", fence.ErrInvalid, form)
	}
	return c, c.check()
}

// check refuses a credential that could not be sent or hidden.
func (c Credential) check() error {
	switch {
	case c == Credential{}:
		return nil
	case !isPlain(c.Value, 64<<10):
		return fmt.Errorf("%w credential: its value is empty, or has characters that no header has", fence.ErrInvalid)
	case len(c.Value) < shortestSecret:
		return fmt.Errorf("%w credential: its value has less than %d characters, so it could not be hidden in answers",
			fence.ErrInvalid, shortestSecret)
	}
	return nil
}

// checkHeader refuses a credential that would stand for a header of the proxy.
func (c Credential) checkHeader() error {
	own := []string{
		sessionHeader, revisionHeader, methodHeader, nameHeader, lastEventHeader, "Accept", "Accept-Encoding",
		"Connection", "Content-Length", "Content-Type", "Expect", "Host", "Te", "Trailer", "Transfer-Encoding",
		"Upgrade",
	}
	name := textproto.CanonicalMIMEHeaderKey(c.Name)
	taken := slices.Contains(own, name) || strings.HasPrefix(name, paramHeader)
	if c.Name != "" && (taken || !headerName.MatchString(name)) {
		return fmt.Errorf("%w credential: the header %.100q is the proxy's own, or none", fence.ErrInvalid, c.Name)
	}
	return nil
}

// secrets returns the texts to hide: the value, and of a header such as
// Authorization: Bearer TOKEN the token alone.
func (c Credential) secrets() []string {
	var secrets []string
	for _, s := range []string{c.Value, c.Value[strings.LastIndexByte(c.Value, ' ')+1:]} {
		if len(s) >= shortestSecret {
			secrets = append(secrets, s)
		}
	}
	return secrets
}

// hide returns a text without the credential.
func (c Credential) hide(text string) string {
	for _, s := range c.secrets() {
		text = strings.ReplaceAll(text, s, "[hidden by croft]")
	}
	return text
}

// hideIn returns a value without the credential.
func (c Credential) hideIn(value any) any {
	switch v := value.(type) {
	case string:
		return c.hide(v)
	case json.Number: // a secret may be one
		if text := c.hide(string(v)); text != string(v) {
			return text
		}
	case object:
		o := make(object, len(v))
		for i, m := range v {
			o[i] = member{c.hide(m.name), c.hideIn(m.value)}
		}
		return o
	case list:
		l := make(list, len(v))
		for i, each := range v {
			l[i] = c.hideIn(each)
		}
		return l
	}
	return value
}

// hideInError returns an error without the credential. It may not match others
// any more.
func (c Credential) hideInError(err error) error {
	if err == nil {
		return nil
	}
	if text := c.hide(err.Error()); text != err.Error() {
		return errors.New(text)
	}
	return err
}

// hiding makes the options tell nobody the credential.
func (o *Options) hiding() {
	c := o.Credential
	if c.Value == "" {
		return
	}
	dropped, observe := o.Dropped, o.Observe
	o.Dropped = func(err error) { dropped(c.hideInError(err)) }
	if observe != nil {
		o.Observe = func(e gate.Event) {
			e.Err = c.hideInError(e.Err)
			observe(e)
		}
	}
}
