// Program mcpsdk is a client of an MCP server, made with the official SDK for
// Go. It starts the server, does everything that a client can ask for, and
// prints what it has heard, one line of JSON for each step. A test compares
// what it hears from a server with what it hears through croft mcp.
//
// It is a module by itself, because the SDK must not become a dependency of
// programs that use Croft. The module also pins the SDK's own server for
// conformance tests.
//
//	mcpsdk 2025-11-25 COMMAND [ARGUMENT...]
//	mcpsdk 2026-07-28 http://127.0.0.1:3000/mcp
//
//	mcpsdk bench 1000 TOOL '{"argument": 1}' COMMAND [ARGUMENT...]
//
// The last form calls a tool again and again, and prints the median of the
// times that a call takes, in nanoseconds.
//
// The SDK calls the handlers for what the server asks on goroutines of its own.
// A mutex guards the list of what was heard.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mcpsdk:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 4 && args[0] == "bench" {
		return bench(ctx, args[1], args[2], args[3], args[4:])
	}
	if len(args) < 2 {
		return errors.New("name a revision, and the server's URL or command")
	}
	c := &client{}
	session, err := c.connect(ctx, args[0], args[1:])
	if err != nil {
		return err
	}
	c.walk(ctx, session)
	return session.Close()
}

// transport returns the way to a server: a URL or a command.
func transport(server []string) mcp.Transport {
	if strings.HasPrefix(server[0], "http") {
		return &mcp.StreamableClientTransport{Endpoint: server[0], HTTPClient: &http.Client{Transport: stamped{}}}
	}
	cmd := exec.Command(server[0], server[1:]...)
	cmd.Stderr = os.Stderr
	return &mcp.CommandTransport{Command: cmd}
}

// stamped adds the stamp of CROFT_STAMP to requests, if there is one.
type stamped struct{}

func (stamped) RoundTrip(r *http.Request) (*http.Response, error) {
	if stamp := os.Getenv("CROFT_STAMP"); stamp != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Croft-Stamp", stamp)
	}
	return http.DefaultTransport.RoundTrip(r)
}

// client notes what the server says and asks.
type client struct {
	mu sync.Mutex
	// asked has the requests of the server since the last step. It is sorted
	// when it is printed.
	asked []string
	// told has its notifications. The SDK hands them on at some moment, so they
	// are printed at the end.
	told []string
}

// hear notes a request of the server.
func (c *client) hear(what string, about any) {
	text, _ := json.Marshal(about)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, what+" "+string(text))
}

// note notes a notification of the server.
func (c *client) note(what string, about any) {
	text, _ := json.Marshal(about)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = append(c.told, what+" "+string(text))
}

// all returns the notifications, when none has come for a while.
func (c *client) all() []string {
	for before := -1; ; time.Sleep(300 * time.Millisecond) {
		c.mu.Lock()
		told := slices.Sorted(slices.Values(c.told))
		c.mu.Unlock()
		if len(told) == before {
			return told
		}
		before = len(told)
	}
}

// print prints a step: what the client asked, the answer, and what the server
// has sent meanwhile.
func (c *client) print(step string, answer any, err error) {
	c.mu.Lock()
	asked := c.asked
	c.asked = nil
	c.mu.Unlock()
	slices.Sort(asked)
	line := map[string]any{"step": step, "answer": answer}
	if len(asked) > 0 {
		line["heard"] = asked
	}
	if err != nil {
		line["error"] = err.Error()
	}
	text, _ := json.Marshal(line)
	fmt.Println(string(text))
}

func (c *client) connect(ctx context.Context, revision string, server []string) (*mcp.ClientSession, error) {
	m := mcp.NewClient(&mcp.Implementation{Name: "mcpsdk", Version: "1"}, &mcp.ClientOptions{
		CreateMessageHandler: func(_ context.Context, r *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			c.hear("sampling", r.Params)
			return &mcp.CreateMessageResult{
				Model: "none", Role: "assistant", Content: &mcp.TextContent{Text: "a sample"}, StopReason: "endTurn",
			}, nil
		},
		ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			c.hear("elicitation", r.Params)
			return &mcp.ElicitResult{Action: "accept", Content: sample(r.Params.RequestedSchema)}, nil
		},
		LoggingMessageHandler: func(_ context.Context, r *mcp.LoggingMessageRequest) { c.note("log", r.Params) },
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			c.note("progress", r.Params)
		},
	})
	m.AddRoots(&mcp.Root{Name: "here", URI: "file:///here"})
	return m.Connect(ctx, transport(server), &mcp.ClientSessionOptions{ProtocolVersion: revision})
}

// differing lists tools, by the beginnings of their names, that do not do the
// same each time: they send something at some moment after the answer, show the
// server's environment, or use the network.
var differing = []string{"test_trigger", "test_reconnection", "toggle-", "simulate-", "get-env", "gzip-"}

// walk asks for everything.
func (c *client) walk(ctx context.Context, s *mcp.ClientSession) {
	c.print("initialize", s.InitializeResult(), nil)
	if s.InitializeResult().ProtocolVersion < "2026" { // later revisions have neither
		c.print("ping", nil, s.Ping(ctx, nil))
		c.print("level", nil, s.SetLoggingLevel(ctx, &mcp.SetLoggingLevelParams{Level: "debug"}))
	}

	var tools []*mcp.Tool
	for tool, err := range s.Tools(ctx, nil) {
		if c.print("tool", tool, err); err != nil {
			break
		}
		tools = append(tools, tool)
	}
	for _, tool := range tools {
		if slices.ContainsFunc(differing, func(prefix string) bool { return strings.HasPrefix(tool.Name, prefix) }) {
			continue
		}
		arguments := sample(tool.InputSchema)
		wrong := map[string]any{"wrong": []int{1}}
		if tool.Name == "trigger-long-running-operation" { // it takes 10 s if nobody says how long
			arguments, wrong = map[string]any{"duration": 0.1, "steps": 5}, map[string]any{"duration": "long"}
		}
		params := &mcp.CallToolParams{Name: tool.Name, Arguments: arguments}
		params.SetProgressToken("p-" + tool.Name)
		r, err := s.CallTool(ctx, params)
		c.print("call "+tool.Name, r, err)
		r, err = s.CallTool(ctx, &mcp.CallToolParams{Name: tool.Name, Arguments: wrong})
		c.print("call "+tool.Name+" with a wrong argument", r, err)
	}
	r, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "no such tool"})
	c.print("call of no tool", r, err)

	for resource, err := range s.Resources(ctx, nil) {
		if c.print("resource", resource, err); err != nil {
			break
		}
		content, err := s.ReadResource(ctx, &mcp.ReadResourceParams{URI: resource.URI})
		if strings.Contains(resource.URI, "dynamic") {
			content = nil // it has a time
		}
		c.print("read "+resource.URI, content, err)
	}
	for template, err := range s.ResourceTemplates(ctx, nil) {
		if c.print("template", template, err); err != nil {
			break
		}
	}
	_, err = s.ReadResource(ctx, &mcp.ReadResourceParams{URI: "none://here"})
	c.print("read nothing", nil, err)
	for prompt, err := range s.Prompts(ctx, nil) {
		if c.print("prompt", prompt, err); err != nil {
			break
		}
		args := map[string]string{}
		for _, a := range prompt.Arguments {
			args[a.Name] = "1"
		}
		got, err := s.GetPrompt(ctx, &mcp.GetPromptParams{Name: prompt.Name, Arguments: args})
		c.print("get "+prompt.Name, got, err)
		done, err := s.Complete(ctx, &mcp.CompleteParams{
			Ref:      &mcp.CompleteReference{Type: "ref/prompt", Name: prompt.Name},
			Argument: mcp.CompleteParamsArgument{Name: "arg1", Value: "t"},
		})
		c.print("complete "+prompt.Name, done, err)
	}
	c.print("notifications", c.all(), nil)
}

// sample returns arguments that fit the required properties of a schema.
func sample(schema any) map[string]any {
	text, _ := json.Marshal(schema)
	var s struct {
		Required   []string
		Properties map[string]struct {
			Type string
			Enum []any
		}
	}
	_ = json.Unmarshal(text, &s) // a schema of another form requires nothing
	args := map[string]any{}
	for _, name := range s.Required {
		switch p := s.Properties[name]; {
		case len(p.Enum) > 0:
			args[name] = p.Enum[0]
		case p.Type == "number" || p.Type == "integer":
			args[name] = 1
		case p.Type == "boolean":
			args[name] = true
		case p.Type == "array":
			args[name] = []any{}
		case p.Type == "object":
			args[name] = map[string]any{}
		default:
			args[name] = "text"
		}
	}
	return args
}

// bench prints the median time of a call.
func bench(ctx context.Context, count, tool, arguments string, server []string) error {
	n, err := strconv.Atoi(count)
	if err != nil || n < 1 {
		return fmt.Errorf("%q is no number of calls", count)
	}
	c := mcp.NewClient(&mcp.Implementation{Name: "mcpsdk", Version: "1"}, nil)
	session, err := c.Connect(ctx, transport(server), nil)
	if err != nil {
		return err
	}
	took := make([]time.Duration, n)
	for i := range took {
		began := time.Now()
		r, err := session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: json.RawMessage(arguments)})
		if took[i] = time.Since(began); err != nil || r.IsError {
			text, _ := json.Marshal(r)
			return fmt.Errorf("call %d: %w; %s", i, err, text)
		}
	}
	slices.Sort(took)
	fmt.Println(took[n/2].Nanoseconds())
	return session.Close()
}
