package mcp

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// These bound what a header may have.
const (
	mostID     = 1024 // bytes of the id of a session, an event or a call
	mostParams = 64   // headers that mirror arguments
)

// These are the names of headers.
const (
	sessionHeader   = "Mcp-Session-Id"
	revisionHeader  = "Mcp-Protocol-Version"
	methodHeader    = "Mcp-Method"
	nameHeader      = "Mcp-Name"
	paramHeader     = "Mcp-Param-" // begins the names of headers that mirror arguments
	lastEventHeader = "Last-Event-Id"
)

// heads are the headers of a request that count. No other header of a client
// reaches the upstream, so neither do its credentials, cookies and stamps.
type heads struct {
	revision, session, method, name, lastEvent string
	params                                     map[string]string // by their full names, decoded
}

// era returns the revisions to which a request belongs.
func (h heads) era() era {
	if h.revision == newest {
		return sessionless
	}
	return sessions
}

// mismatch returns the fault of headers that say something else than the
// message, or that could be read in two ways.
func mismatch(format string, args ...any) *fault {
	return &fault{code: headerMismatch, say: fmt.Sprintf(format, args...) + "; nothing was sent on"}
}

// isPlain reports whether a header's value has only visible characters and
// single spaces between them, and is not too long.
func isPlain(value string, most int) bool {
	return value != "" && len(value) <= most && value == strings.TrimSpace(value) &&
		!strings.ContainsFunc(value, func(c rune) bool { return c < ' ' || c > '~' })
}

// dated matches the name of a revision.
var dated = regexp.MustCompile(`^[0-9]{4}-[0-9]{2}-[0-9]{2}$`)

// readHeads reads the headers that count. It refuses those that two programs
// could read differently.
func readHeads(from http.Header) (heads, *fault) {
	h := heads{params: map[string]string{}}
	for name, to := range map[string]*string{
		sessionHeader: &h.session, revisionHeader: &h.revision, methodHeader: &h.method, nameHeader: &h.name,
		lastEventHeader: &h.lastEvent, "Content-Type": new(string), "Content-Encoding": new(string),
	} {
		values := from.Values(name)
		if len(values) > 1 {
			return h, mismatch("the header %s is there %d times", name, len(values))
		}
		if len(values) == 0 {
			continue
		}
		*to = values[0]
		if !isPlain(*to, 2*mostID) {
			return h, mismatch("the header %s is empty, too long, or has characters that no header has", name)
		}
	}
	if len(h.session) > mostID || strings.Contains(h.session, " ") || len(h.lastEvent) > mostID {
		return h, mismatch("the id of a session or an event has more than %d characters, or a space", mostID)
	}
	if h.revision != "" && (!dated.MatchString(h.revision) || h.revision > newest) {
		return h, &fault{
			code: unknownRevision, say: "the proxy does not know this revision of the protocol; nothing was sent on",
			data: object{{"supported", list{newest}}, {"requested", h.revision}},
		}
	}
	if h.name != "" {
		var ok bool
		if h.name, ok = decodeHeader(h.name); !ok {
			return h, mismatch("the header %s is not encoded as it should be", nameHeader)
		}
	}
	for name, values := range from {
		if !strings.HasPrefix(name, paramHeader) {
			continue
		}
		value, ok := "", len(values) == 1 && isPlain(values[0], 8*mostID)
		if ok {
			value, ok = decodeHeader(values[0])
		}
		if !ok || len(h.params) == mostParams {
			return h, mismatch("the header %s is there twice, or is not encoded as it should be", name)
		}
		h.params[name] = value
	}
	return h, nil
}

// These are around a value that is encoded because a header cannot have it.
const encodedPrefix, encodedSuffix = "=?base64?", "?="

func decodeHeader(value string) (string, bool) {
	inner, begins := strings.CutPrefix(value, encodedPrefix)
	inner, ends := strings.CutSuffix(inner, encodedSuffix)
	if !begins || !ends {
		return value, true
	}
	text, err := base64.StdEncoding.Strict().DecodeString(inner)
	return string(text), err == nil && utf8.Valid(text)
}

func encodeHeader(value string) string {
	encoded := strings.HasPrefix(value, encodedPrefix) && strings.HasSuffix(value, encodedSuffix)
	if isPlain(value, 8*mostID) && !encoded {
		return value
	}
	return encodedPrefix + base64.StdEncoding.EncodeToString([]byte(value)) + encodedSuffix
}

// check refuses a message that its headers do not agree with.
func (h heads) check(m message) *fault {
	named := m.revision()
	if m.isRequest() && named == "" && h.era() == sessionless {
		return &fault{code: invalidParams, say: "its _meta does not name the revision; nothing was sent on"}
	}
	if m.isRequest() && (named == newest) != (h.era() == sessionless) {
		return mismatch("the header %s says %q, and the message %q", revisionHeader, h.revision, named)
	}
	if h.method != "" && h.method != m.method || h.method == "" && m.isRequest() && h.era() == sessionless {
		return mismatch("the header %s says %q, and the message %q", methodHeader, h.method, m.method)
	}
	name, required := m.name()
	if h.name != "" && h.name != name || h.name == "" && name != "" && required && h.era() == sessionless {
		return mismatch("the header %s says %.100q, and the message %.100q", nameHeader, h.name, name)
	}
	for header, value := range h.params {
		if !hasValue(m.params.object("arguments"), value) {
			return mismatch("the header %s says %.100q, which no argument of the message does", header, value)
		}
	}
	return nil
}

// name returns what the header Mcp-Name mirrors, and whether it is required in
// revisions that have it.
func (m message) name() (name string, required bool) {
	switch m.method {
	case "tools/call", "prompts/get":
		return m.params.text("name"), true
	case "resources/read":
		return m.params.text("uri"), true
	}
	for _, member := range []string{"name", "uri", "taskId"} {
		if text := m.params.text(member); text != "" {
			return text, false
		}
	}
	return "", false
}

// hasValue reports whether an argument, at any depth of objects, has a value
// that a header can mirror: a string, an integer or a boolean. The proxy does
// not know which argument a header mirrors; the upstream does.
func hasValue(arguments object, value string) bool {
	return slices.ContainsFunc(arguments, func(m member) bool {
		switch v := m.value.(type) {
		case object:
			return hasValue(v, value)
		case string:
			return v == value
		case json.Number:
			return string(v) == value || sameNumber(string(v), value)
		case bool:
			return fmt.Sprint(v) == value
		}
		return false
	})
}

// sameNumber reports whether two texts are the same integer, as 42 and 42.0.
func sameNumber(a, b string) bool {
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	return errX == nil && errY == nil && x == y && x == math.Trunc(x) && math.Abs(x) < exact
}

// outgoing returns the headers of a request to the upstream. The message is
// zero if there is none.
func (h heads) outgoing(m message, credential Credential) http.Header {
	out := http.Header{"User-Agent": {"croft"}, "Accept-Encoding": {"identity"}, "Accept": {eventStream}}
	set := func(name, value string) {
		if value != "" {
			out.Set(name, value)
		}
	}
	set(revisionHeader, h.revision)
	if h.era() == sessions {
		set(sessionHeader, h.session)
		set(lastEventHeader, h.lastEvent)
	}
	if m.body != nil {
		out.Set("Content-Type", "application/json")
		out.Set("Accept", "application/json, "+eventStream)
		if h.era() == sessionless {
			set(methodHeader, m.method)
			if h.name != "" {
				set(nameHeader, encodeHeader(h.name))
			}
			for name, value := range h.params {
				out.Set(name, encodeHeader(value))
			}
		}
	}
	set(credential.Name, credential.Value)
	return out
}

const eventStream = "text/event-stream"

// accepts reports whether a client takes a kind of answer. A client that does
// not say takes all.
func accepts(h http.Header, kind string) bool {
	values := h.Values("Accept")
	all, _, _ := strings.Cut(kind, "/")
	for _, value := range values {
		for one := range strings.SplitSeq(value, ",") {
			got, _, err := mime.ParseMediaType(one)
			if err == nil && (got == kind || got == "*/*" || got == all+"/*") {
				return true
			}
		}
	}
	return len(values) == 0
}

// isType reports whether a header names a type of content.
func isType(h http.Header, kind string) bool {
	got, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	charset := params["charset"]
	return err == nil && got == kind && (charset == "" || strings.EqualFold(charset, "utf-8"))
}
