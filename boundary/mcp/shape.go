package mcp

import "strings"

// This file has what the proxy changes in messages.

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
func (c *core) cleaned(m message) message {
	if m.params == nil {
		return m
	}
	params := m.params
	for _, name := range []string{"_meta", "arguments"} {
		if inner := params.object(name); inner != nil && (name == "_meta" || m.method == "tools/call") {
			params = params.with(name, inner.without(namesCroft))
		}
	}
	if c.o.Tasks {
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
// from it which tools are said to write nothing. The method is "" if it is not
// known.
func (c *core) shown(method string, m message) message {
	result := m.result()
	if result == nil {
		return m
	}
	if method == "initialize" || method == "server/discover" || method == "" {
		if capabilities := result.object("capabilities"); capabilities != nil && !c.o.Tasks {
			result = result.with("capabilities", withoutTasks(capabilities))
		}
	}
	value, _ := result.get("tools")
	if tools, ok := value.(list); ok && (method == "tools/list" || method == "") {
		shown := make(list, len(tools))
		for i, tool := range tools {
			shown[i] = c.shownTool(tool, method != "")
		}
		result = result.with("tools", shown)
	}
	return m.withResult(result)
}

func (c *core) shownTool(value any, learn bool) any {
	tool, ok := value.(object)
	if !ok {
		return value
	}
	if hint, _ := tool.object("annotations").get("readOnlyHint"); learn {
		c.hints.learn(tool.text("name"), hint == true)
	}
	if execution := tool.object("execution"); execution != nil && !c.o.Tasks {
		return tool.with("execution", execution.without(func(name string) bool { return name == "taskSupport" }))
	}
	return tool
}
