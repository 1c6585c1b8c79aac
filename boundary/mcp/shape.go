package mcp

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/admission"
)

// This file has what the proxy changes in messages, and the messages of its
// own.

// These are names of revisions without sessions. There every request says in
// its _meta what the client can do. In earlier revisions initialize says it,
// and the extension for tasks is the capability tasks.
const (
	tasksExtension     = "io.modelcontextprotocol/tasks"
	clientCapabilities = "io.modelcontextprotocol/clientCapabilities"
	protocolVersion    = "io.modelcontextprotocol/protocolVersion"
)

// cleaned returns a message of the client as it goes on: without members that
// name croft, and without support for tasks unless it is wanted.
func (s *session) cleaned(m message) message {
	if m.params == nil {
		return m
	}
	params := m.params
	for _, name := range []string{"_meta", "arguments"} {
		if inner := params.object(name); inner != nil && (name == "_meta" || m.method == "tools/call") {
			params = params.with(name, inner.without(namesCroft))
		}
	}
	if s.o.Tasks {
		return m.withParams(params)
	}
	if able := params.object("capabilities"); able != nil {
		params = params.with("capabilities", withoutTasks(able))
	}
	meta := params.object("_meta")
	if able := meta.object(clientCapabilities); able != nil {
		params = params.with("_meta", meta.with(clientCapabilities, withoutTasks(able)))
	}
	return m.withParams(params)
}

// unclaimed returns a message of the upstream without members of _meta that
// name croft: a refusal must be the proxy's own.
func unclaimed(m message) message {
	for _, part := range []string{"params", "result"} {
		inner := m.body.object(part)
		if meta := inner.object("_meta"); meta != nil {
			m.body = m.body.with(part, inner.with("_meta", meta.without(namesCroft)))
		}
	}
	return m
}

// namesCroft reports whether a member names croft: in any case, alone or before
// a sign, as in croft/stamp and croft_stamp.
func namesCroft(name string) bool {
	rest, is := strings.CutPrefix(folded(name), "croft")
	return is && (rest == "" || strings.ContainsAny(rest[:1], "/._-:"))
}

// withoutTasks returns capabilities without those for tasks.
func withoutTasks(capabilities object) object {
	capabilities = capabilities.without(func(name string) bool { return name == "tasks" })
	if extensions := capabilities.object("extensions"); extensions != nil {
		capabilities = capabilities.with("extensions",
			extensions.without(func(name string) bool { return name == tasksExtension }))
	}
	return capabilities
}

// isTask reports whether a result is the handle of a task.
func isTask(result object) bool {
	return result.text("resultType") == "task" || result.object("task") != nil
}

// shown returns an answer of the upstream as the client sees it, and learns
// from it which tools are said to write nothing.
func (s *session) shown(method string, m message) message {
	result := m.result()
	if result == nil {
		return m
	}
	switch method {
	case "initialize", "server/discover":
		if capabilities := result.object("capabilities"); capabilities != nil && !s.o.Tasks {
			return m.withResult(result.with("capabilities", withoutTasks(capabilities)))
		}
	case "tools/list":
		value, _ := result.get("tools")
		tools, _ := value.(list)
		shown := make(list, len(tools))
		for i, tool := range tools {
			shown[i] = s.shownTool(tool)
		}
		if tools != nil {
			return m.withResult(result.with("tools", shown))
		}
	}
	return m
}

func (s *session) shownTool(value any) any {
	tool, ok := value.(object)
	if !ok {
		return value
	}
	hint, _ := tool.object("annotations").get("readOnlyHint")
	s.mu.Lock()
	s.readOnly[tool.text("name")] = hint == true
	s.mu.Unlock()
	if execution := tool.object("execution"); execution != nil && !s.o.Tasks {
		return tool.with("execution", execution.without(func(name string) bool { return name == "taskSupport" }))
	}
	return tool
}

// These are the codes of JSON-RPC.
const (
	invalidRequest = -32600
	methodNotFound = -32601
	internalError  = -32603
)

// rpcError returns an error as the answer to a request. If the message could
// not be read, the id is null.
func rpcError(to message, code int, say string) object {
	id, _ := to.body.get("id")
	if to.id == "" {
		id = nil
	}
	return object{
		{"jsonrpc", "2.0"},
		{"id", id},
		{"error", object{{"code", json.Number(strconv.Itoa(code))}, {"message", "croft: " + say}}},
	}
}

// meanings tells a refused agent what a code means for it. It says who may go
// on, and not how to become that one.
var meanings = map[string]string{
	"not_owned": "This agent does not hold the task any more. Stop this work.",
	"stale":     "A newer owner of the task has written here. Stop this work.",
	"collision": "The task was granted twice. Stop this work, and tell the people who run it.",
	"wrong_key": "What this tool writes to belongs to another task. Leave it alone.",
	"held":      "Another write is under way. Try again later.",
	"unknown":   "It could not be decided whether this agent may write. Try again later.",
}

// refused returns a refusal as the result of a call. The agent reads its text.
// Its _meta has the same for programs.
func refused(to message, r *admission.Refusal) object {
	facts := r.Facts()
	say := meanings[r.Code]
	switch {
	case r.Say != "":
		say = sentence(r.Say)
	case r.Code == "invalid":
		say = sentence(r.Detail())
	}
	if facts.Owner != "" {
		say += fmt.Sprintf(" The task %s now belongs to %s.", facts.Key, facts.Owner)
	}
	if !r.Sent && !strings.Contains(say, "nothing was sent") {
		say += " Nothing was sent to the server."
	}
	about := object{{"code", r.Code}, {"sent", r.Sent}}
	for _, m := range []member{{"resource", r.Resource}, {"key", facts.Key}, {"owner", facts.Owner}} {
		if m.value != "" {
			about = append(about, m)
		}
	}
	for _, m := range []struct {
		name  string
		token fence.Token
	}{{"token", facts.Token}, {"newest", facts.Newest}} {
		if m.token != 0 {
			about = append(about, member{m.name, json.Number(strconv.FormatInt(int64(m.token), 10))})
		}
	}
	result := object{
		{"content", list{object{{"type", "text"}, {"text", "Refused by croft (" + r.Code + "). " + say}}}},
		{"isError", true},
		{"_meta", object{{"croft/refusal", about}}},
	}
	if to.params.object("_meta").text(protocolVersion) != "" {
		result = append(result, member{"resultType", "complete"})
	}
	id, _ := to.body.get("id")
	return object{{"jsonrpc", "2.0"}, {"id", id}, {"result", result}}
}

// sentence begins a text with a capital and ends it with a full stop.
func sentence(text string) string { return strings.ToUpper(text[:1]) + text[1:] + "." }
