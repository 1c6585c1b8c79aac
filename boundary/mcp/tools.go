package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/croft-dev/croft/fence"
)

// Toolbox is an MCP server whose tools this process carries out itself. Name,
// Version and Refusal are required.
type Toolbox struct {
	Name, Version string
	// Instructions tell the agent what the tools are for.
	Instructions string
	Tools        []Tool
	// Refusal describes an error of a call: its code, and an object of details
	// that has a form in JSON.
	Refusal func(error) (code string, details any)
}

// Tool is one tool of a [Toolbox].
type Tool struct {
	Name, Title, Description string
	// Params are all arguments that the tool takes. A call with others is
	// refused.
	Params []Param
	// Reads says that the tool changes nothing.
	Reads bool
	// Call carries a call out. It returns an object that has a form in JSON.
	// Its context ends when the client cancels the call or the server ends.
	Call func(ctx context.Context, args Arguments) (any, error)
}

// Kind is the type of an argument.
type Kind string

// These are the types of arguments, as JSON Schema names them.
const (
	Text   Kind = "string"
	Number Kind = "integer"
	Flag   Kind = "boolean"
)

// Param describes an argument.
type Param struct {
	Name, Description string
	Kind              Kind
	Required          bool
	OneOf             []string // the texts that are allowed; default: all
	Least, Most       int      // of a number, or of the bytes of a text
}

// Arguments are the arguments of a call. They fit the tool's Params.
type Arguments struct{ values object }

// Has reports whether an argument is there.
func (a Arguments) Has(name string) bool {
	_, is := a.values.get(name)
	return is
}

// Text returns a text, or "".
func (a Arguments) Text(name string) string { return a.values.text(name) }

// Number returns a number, or 0.
func (a Arguments) Number(name string) int {
	value, _ := a.values.get(name)
	n, _ := value.(json.Number)
	i, _ := n.Int64()
	return int(i)
}

// Flag returns a truth value, or false.
func (a Arguments) Flag(name string) bool {
	value, _ := a.values.get(name)
	is, _ := value.(bool)
	return is
}

// mostWaiting bounds the calls that wait for the one before them.
const mostWaiting = 64

// ServeTools serves a client until it leaves or ctx ends. It then waits for the
// calls that have arrived; the end of ctx also ends theirs. It speaks the
// revisions with initialize, and 2026-07-28.
//
// One goroutine reads messages, one carries out the calls in their order, and
// one writes answers. The mutex guards the table of unanswered calls.
func ServeTools(ctx context.Context, in io.Reader, out io.Writer, box *Toolbox) error {
	if box.Refusal == nil || box.Name == "" || box.Version == "" {
		return fmt.Errorf("%w toolbox: it needs a name, a version and a form for refusals", fence.ErrInvalid)
	}
	s := &toolServer{
		box: box, outbox: newOutbox(), waiting: make(chan *servedCall, mostWaiting), calls: map[string]*servedCall{},
	}
	s.ctx, s.end = context.WithCancel(ctx)
	defer s.end()
	defer context.AfterFunc(s.ctx, s.outbox.hurry)() // no call waits then for a client that does not read
	written, done := make(chan struct{}), make(chan struct{})
	go func() { defer close(written); s.outbox.drain(out) }()
	go s.read(newLines(in))
	go func() { defer close(done); s.work() }()
	<-done
	s.outbox.close()
	select {
	case <-written:
	case <-time.After(leaves): // the client does not read
	}
	return nil
}

type toolServer struct {
	box     *Toolbox
	outbox  *outbox
	waiting chan *servedCall
	ctx     context.Context
	end     context.CancelFunc

	mu    sync.Mutex
	calls map[string]*servedCall // by id
}

// servedCall is a call of a tool that is not answered.
type servedCall struct {
	message
	ctx    context.Context
	cancel context.CancelFunc // the client has cancelled it, or it is answered
}

// read reads messages until the client leaves. It answers all but calls of
// tools itself.
func (s *toolServer) read(l *lines) {
	defer close(s.waiting)
	for {
		line, err := l.next()
		if err != nil && !errors.Is(err, errTooLong) {
			return
		}
		var m message
		if err == nil {
			m, err = decode(line)
		}
		switch {
		case err != nil:
			if !m.isRequest() || s.inUse(m.id) {
				m = message{}
			}
			s.outbox.put(rpcError(m, invalidRequest, "the message is refused: "+err.Error()))
		case m.isRequest():
			s.request(m)
		case m.method == "notifications/cancelled":
			s.cancelled(m)
		}
	}
}

func (s *toolServer) inUse(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[id] != nil
}

// cancelled ends a call. The client expects no answer to it.
func (s *toolServer) cancelled(m message) {
	value, _ := m.params.get("requestId")
	id, err := idText(value)
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.calls[id]; err == nil && c != nil {
		delete(s.calls, id)
		c.cancel()
	}
}

// The revisions that are spoken. Since the newest one there is no initialize,
// and every request names its revision.
const newestRevision = "2026-07-28"

var olderRevisions = []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}

// These are codes of JSON-RPC and MCP.
const (
	invalidParams       = -32602
	unsupportedRevision = -32022
)

// request answers a request, or lets a call of a tool wait for its turn.
func (s *toolServer) request(m message) {
	newest := m.params.object("_meta").text(protocolVersion) != ""
	if s.inUse(m.id) {
		s.outbox.put(rpcError(message{}, invalidRequest, "a request with this id is not answered yet"))
		return
	}
	if wrong := checkRevision(m); wrong != nil {
		s.outbox.put(wrong)
		return
	}
	switch {
	case m.method == "tools/call":
		s.call(m)
	case m.method == "tools/list":
		s.outbox.put(resultOf(m, object{{"tools", s.described()}}, true))
	case m.method == "server/discover" && newest:
		s.outbox.put(resultOf(m, object{
			{"supportedVersions", texts(append([]string{newestRevision}, olderRevisions...))},
			{"capabilities", object{{"tools", object{}}}},
			{"instructions", s.box.Instructions},
			{"_meta", object{{"io.modelcontextprotocol/serverInfo", s.info()}}},
		}, true))
	case m.method == "initialize" && !newest:
		revision := m.params.text("protocolVersion")
		if !slices.Contains(olderRevisions, revision) {
			revision = olderRevisions[0]
		}
		s.outbox.put(resultOf(m, object{
			{"protocolVersion", revision},
			{"capabilities", object{{"tools", object{}}}},
			{"serverInfo", s.info()},
			{"instructions", s.box.Instructions},
		}, false))
	case m.method == "ping" && !newest:
		s.outbox.put(resultOf(m, object{}, false))
	default:
		s.outbox.put(rpcError(m, methodNotFound, "this server does not have the method"))
	}
}

// checkRevision returns the error for a request whose revision is not spoken,
// or nil.
func checkRevision(m message) object {
	meta := m.params.object("_meta")
	revision := meta.text(protocolVersion)
	switch {
	case revision == "":
		return nil
	case revision != newestRevision:
		wrong := rpcError(m, unsupportedRevision, "this revision of the protocol is not spoken here")
		return wrong.with("error", wrong.object("error").with("data", object{
			{"supported", texts(append([]string{newestRevision}, olderRevisions...))}, {"requested", revision},
		}))
	case meta.object(clientCapabilities) == nil:
		return rpcError(m, invalidParams, "_meta lacks "+clientCapabilities)
	}
	return nil
}

func (s *toolServer) info() object {
	return object{{"name", s.box.Name}, {"version", s.box.Version}}
}

func texts(all []string) list {
	l := make(list, len(all))
	for i, text := range all {
		l[i] = text
	}
	return l
}

// resultOf returns the response to a request. The newest revision wants to know
// whether the result is complete, and for how long a client may keep it.
func resultOf(to message, result object, cacheable bool) object {
	if to.params.object("_meta").text(protocolVersion) != "" {
		result = append(slices.Clip(result), member{"resultType", "complete"})
		if cacheable {
			result = append(result, member{"ttlMs", json.Number("300000")}, member{"cacheScope", "private"})
		}
	}
	id, _ := to.body.get("id")
	return object{{"jsonrpc", "2.0"}, {"id", id}, {"result", result}}
}

// described lists the tools with their schemas. No tool takes arguments that
// its schema does not name.
func (s *toolServer) described() list {
	all := make(list, len(s.box.Tools))
	for i, t := range s.box.Tools {
		properties, required := object{}, []string{}
		for _, p := range t.Params {
			properties = append(properties, member{p.Name, p.schema()})
			if p.Required {
				required = append(required, p.Name)
			}
		}
		schema := object{{"type", "object"}, {"properties", properties}}
		if len(required) > 0 {
			schema = append(schema, member{"required", texts(required)})
		}
		hints := object{{"title", t.Title}, {"readOnlyHint", t.Reads}}
		if !t.Reads {
			hints = append(hints, member{"destructiveHint", false})
		}
		all[i] = object{
			{"name", t.Name},
			{"title", t.Title},
			{"description", t.Description},
			{"inputSchema", append(schema, member{"additionalProperties", false})},
			{"annotations", append(hints, member{"openWorldHint", false})},
		}
	}
	return all
}

// schema describes a parameter. Its bounds are in bytes for a text, and JSON
// Schema counts characters, of which there are never more.
func (p Param) schema() object {
	o := object{{"type", string(p.Kind)}, {"description", p.Description}}
	if len(p.OneOf) > 0 {
		return append(o, member{"enum", texts(p.OneOf)})
	}
	for _, bound := range []struct {
		text, number string
		value        int
	}{{"minLength", "minimum", p.Least}, {"maxLength", "maximum", p.Most}} {
		name := map[Kind]string{Text: bound.text, Number: bound.number}[p.Kind]
		if name != "" && bound.value != 0 {
			o = append(o, member{name, json.Number(fmt.Sprint(bound.value))})
		}
	}
	return o
}

// call lets a call of a tool wait for its turn.
func (s *toolServer) call(m message) {
	c := &servedCall{message: m}
	c.ctx, c.cancel = context.WithCancel(s.ctx)
	s.mu.Lock()
	s.calls[m.id] = c
	s.mu.Unlock()
	select {
	case s.waiting <- c:
	default:
		s.answer(c, rpcError(m, internalError,
			fmt.Sprintf("%d calls wait for an answer; nothing was done", mostWaiting)))
	}
}

// answer answers a call, unless the client has cancelled it.
func (s *toolServer) answer(c *servedCall, answer object) {
	c.cancel()
	s.mu.Lock()
	wanted := s.calls[c.id] == c
	delete(s.calls, c.id)
	s.mu.Unlock()
	if wanted {
		s.outbox.put(answer)
	}
}

// work carries out calls, one after the other, until the client has left or the
// server ends.
func (s *toolServer) work() {
	for {
		select {
		case c, ok := <-s.waiting:
			if !ok {
				return
			}
			if c.ctx.Err() == nil {
				s.answer(c, s.carryOut(c))
			}
		case <-s.ctx.Done():
			return
		}
	}
}

// carryOut calls a tool and returns the response.
func (s *toolServer) carryOut(c *servedCall) object {
	i := slices.IndexFunc(s.box.Tools, func(t Tool) bool { return t.Name == c.params.text("name") })
	if i < 0 {
		return rpcError(c.message, invalidParams, "there is no tool of this name")
	}
	args, err := s.box.Tools[i].arguments(c.params)
	var result any
	if err == nil {
		result, err = s.box.Tools[i].Call(c.ctx, args)
	}
	if err != nil {
		return s.failed(c, err)
	}
	value, err := valueOf(result)
	if err != nil {
		return s.failed(c, err)
	}
	return resultOf(c.message, object{
		{"content", list{object{{"type", "text"}, {"text", string(encode(value))}}}}, {"structuredContent", value},
	}, false)
}

// failed returns the response to a call that was refused or has failed.
func (s *toolServer) failed(c *servedCall, err error) object {
	code, details := s.box.Refusal(err)
	value, wrong := valueOf(details)
	if wrong != nil {
		value = object{}
	}
	say := value.text("message")
	if say == "" {
		say = err.Error()
	}
	return resultOf(c.message, object{
		{"content", list{object{{"type", "text"}, {"text", "Refused by croft (" + code + "): " + say}}}},
		{"structuredContent", object{{"error", value}}},
		{"isError", true},
	}, false)
}

// valueOf returns an object of Go as one of JSON.
func valueOf(v any) (object, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	value, err := parse(text)
	if err != nil {
		return nil, err
	}
	o, is := value.(object)
	if !is {
		return nil, errors.New("the result is no object")
	}
	return o, nil
}

// arguments checks the arguments of a call.
func (t Tool) arguments(params object) (Arguments, error) {
	value, given := params.get("arguments")
	o, is := value.(object)
	if given && !is {
		return Arguments{}, badArgument("the arguments are no object")
	}
	for _, m := range o {
		i := slices.IndexFunc(t.Params, func(p Param) bool { return p.Name == m.name })
		if i < 0 {
			return Arguments{}, badArgument("%s takes no %.40q", t.Name, m.name)
		}
		if err := t.Params[i].check(m.value); err != nil {
			return Arguments{}, err
		}
	}
	for _, p := range t.Params {
		if _, given := o.get(p.Name); p.Required && !given {
			return Arguments{}, badArgument("%s needs %q: %s", t.Name, p.Name, p.Description)
		}
	}
	return Arguments{o}, nil
}

func badArgument(format string, args ...any) error {
	return fmt.Errorf("%w call: "+format, append([]any{fence.ErrInvalid}, args...)...)
}

// check returns why a value is no argument for the parameter, or nil.
func (p Param) check(value any) error {
	switch v := value.(type) {
	case string:
		switch {
		case p.Kind != Text:
		case len(p.OneOf) > 0 && !slices.Contains(p.OneOf, v):
			return badArgument("%s must be one of %q", p.Name, p.OneOf)
		case len(v) < p.Least || p.Most > 0 && len(v) > p.Most:
			return badArgument("%s has %d bytes, and must have %d to %d", p.Name, len(v), p.Least, p.Most)
		default:
			return nil
		}
	case json.Number:
		n, err := v.Int64()
		switch {
		case p.Kind != Number || err != nil:
		case n < int64(p.Least) || n > int64(p.Most):
			return badArgument("%s must be between %d and %d", p.Name, p.Least, p.Most)
		default:
			return nil
		}
	case bool:
		if p.Kind == Flag {
			return nil
		}
	}
	return badArgument("%s must be of type %s", p.Name, p.Kind)
}
