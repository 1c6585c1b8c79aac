package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/test/testenv"
)

// toolClient is a client of a Toolbox.
type toolClient struct {
	t     *testing.T
	in    *io.PipeWriter
	heard chan string
	ended chan error
}

func newToolClient(t *testing.T, tools ...Tool) *toolClient {
	t.Helper()
	stdin, in := io.Pipe()
	out, stdout := io.Pipe()
	c := &toolClient{t: t, in: in, heard: make(chan string, 200), ended: make(chan error, 1)}
	go func() {
		c.ended <- ServeTools(t.Context(), stdin, stdout, &Toolbox{
			Name: "box", Version: "v1", Instructions: "be kind", Tools: tools,
			Refusal: func(err error) (string, any) { return "no", map[string]string{"message": err.Error()} },
		})
		stdout.Close()
	}()
	go func() {
		for l := newLines(out); ; {
			line, err := l.next()
			if err != nil {
				close(c.heard)
				return
			}
			c.heard <- string(line)
		}
	}()
	t.Cleanup(func() {
		in.Close()
		if err := <-c.ended; err != nil {
			t.Error(err)
		}
	})
	return c
}

func (c *toolClient) say(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		c.t.Error(err)
	}
}

// hear returns the next line.
func (c *toolClient) hear() string {
	c.t.Helper()
	select {
	case line := <-c.heard:
		return line
	case <-time.After(testenv.Patience):
		c.t.Fatal("no answer came")
		return ""
	}
}

// wants sends a line and checks parts of the answer.
func (c *toolClient) wants(line string, parts ...string) {
	c.t.Helper()
	c.say(line)
	got := c.hear()
	for _, part := range parts {
		if !strings.Contains(got, part) {
			c.t.Errorf("%s\nis answered with %s\nwithout %s", line, got, part)
		}
	}
}

// echo is a tool that returns its text.
func echo() Tool {
	return Tool{
		Name: "echo", Title: "Echo", Description: "Say it again.", Reads: true,
		Params: []Param{{Name: "text", Kind: Text, Required: true, Most: 10, Description: "the text"}},
		Call: func(_ context.Context, args Arguments) (any, error) {
			if args.Text("text") == "fail" {
				return nil, errors.New("out of breath")
			}
			return map[string]string{"said": args.Text("text")}, nil
		},
	}
}

// TestAToolboxSpeaksBothEras: with initialize, and without.
func TestAToolboxSpeaksBothEras(t *testing.T) {
	t.Parallel()
	c := newToolClient(t, echo())
	for asked, spoken := range map[string]string{"2024-11-05": "2024-11-05", "2025-11-25": "2025-11-25", "1999-01-01": "2025-11-25", "2026-07-28": "2025-11-25"} {
		c.wants(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"`+asked+`","capabilities":{}}}`,
			`"id":1,"result":{"protocolVersion":"`+spoken+`","capabilities":{"tools":{}},"serverInfo":{"name":"box","version":"v1"},"instructions":"be kind"}`)
	}
	c.say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	c.wants(`{"jsonrpc":"2.0","id":"p","method":"ping"}`, `{"jsonrpc":"2.0","id":"p","result":{}}`)
	c.wants(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`, `"result":{"tools":[{"name":"echo"`, `"additionalProperties":false`,
		`"required":["text"]`, `"readOnlyHint":true`, `"maxLength":10`)
	const call = `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hi"}%s}}`
	c.wants(fmt.Sprintf(call, ""),
		`"result":{"content":[{"type":"text","text":"{\"said\":\"hi\"}"}],"structuredContent":{"said":"hi"}}}`)

	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	c.wants(`{"jsonrpc":"2.0","id":4,"method":"server/discover","params":{`+meta+`}}`,
		`"supportedVersions":["2026-07-28","2025-11-25",`, `"resultType":"complete"`, `"ttlMs":300000`, `"cacheScope":"private"`,
		`"io.modelcontextprotocol/serverInfo":{"name":"box"`)
	c.wants(`{"jsonrpc":"2.0","id":4,"method":"tools/list","params":{`+meta+`}}`, `"resultType":"complete","ttlMs":`)
	c.wants(fmt.Sprintf(call, ","+meta), `"structuredContent":{"said":"hi"},"resultType":"complete"}`)
	for line, code := range map[string]string{
		`"method":"ping","params":{` + meta + `}`:       "-32601",
		`"method":"initialize","params":{` + meta + `}`: "-32601",
		`"method":"server/discover"`:                    "-32601",
		`"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2027-01-01"}}`: `-32022,"message":"croft: this revision of the protocol is not spoken here","data":{"supported":["2026-07-28"`,
		`"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}`: "-32602",
		`"method":"resources/list"`:                                                          "-32601",
		`"method":"tools/call","params":{"name":"Echo"}`:                                     "-32602",
		`"method":"tools/call","params":{"name":"echo","NAME":"x"}`:                          "-32600",
		`"method":"tools/call","params":{"name":"echo","arguments":{"text":"a","text":"b"}}`: "-32600",
	} {
		c.wants(`{"jsonrpc":"2.0","id":5,`+line+`}`, `"error":{"code":`+code)
	}
	c.wants(`[{"jsonrpc":"2.0","id":6,"method":"ping"}]`, `"id":null,"error":{"code":-32600`)
}

// TestAToolTakesWhatItsSchemaNames and nothing else. The refusal is a result.
func TestAToolTakesWhatItsSchemaNames(t *testing.T) {
	t.Parallel()
	many := Tool{
		Name: "many", Reads: false,
		Params: []Param{
			{Name: "n", Kind: Number, Least: -1, Most: 3}, {Name: "b", Kind: Flag}, {Name: "e", Kind: Text, OneOf: []string{"x", "y"}},
		},
		Call: func(_ context.Context, args Arguments) (any, error) {
			return map[string]any{"n": args.Number("n"), "b": args.Flag("b"), "has": args.Has("e")}, nil
		},
	}
	c := newToolClient(t, echo(), many)
	call := func(name, arguments, part string) {
		t.Helper()
		c.wants(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+name+`"`+arguments+`}}`, part)
	}
	for _, bad := range []string{
		``, `,"arguments":{}`, `,"arguments":[]`, `,"arguments":null`, `,"arguments":{"text":null}`, `,"arguments":{"text":7}`,
		`,"arguments":{"Text":"a"}`, `,"arguments":{"text":"a","owner":"bob"}`, `,"arguments":{"text":"12345678901"}`,
		`,"arguments":{"text":"äääääö"}`, `,"arguments":{"text":"fail"}`,
	} {
		call("echo", bad, `"structuredContent":{"error":{"message":"`)
		call("echo", bad, `"isError":true`)
	}
	for _, bad := range []string{`"n":4`, `"n":-2`, `"n":1.5`, `"n":1e0`, `"n":"1"`, `"n":9223372036854775808`, `"b":"true"`, `"b":1`, `"e":"z"`, `"e":true`} {
		call("many", `,"arguments":{`+bad+`}`, `"isError":true`)
	}
	call("many", `,"arguments":{"n":-1,"b":true,"e":"x"}`, `"structuredContent":{"b":true,"has":true,"n":-1}`)
	call("many", ``, `"structuredContent":{"b":false,"has":false,"n":0}`)
	c.wants(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`, `"destructiveHint":false`,
		`"inputSchema":{"type":"object","properties":{"n":{"type":"integer","description":"","minimum":-1,"maximum":3},"b":{"type":"boolean","description":""},`+
			`"e":{"type":"string","description":"","enum":["x","y"]}},"additionalProperties":false}`)
}

// TestCallsAreCarriedOutInTheirOrder: a ping is answered meanwhile, a call that
// the client has cancelled has no answer, and there is a bound on those that
// wait.
func TestCallsAreCarriedOutInTheirOrder(t *testing.T) {
	t.Parallel()
	began, order := make(chan bool), 0
	wait := Tool{Name: "wait", Call: func(ctx context.Context, _ Arguments) (any, error) {
		began <- true
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	next := Tool{Name: "next", Call: func(context.Context, Arguments) (any, error) {
		order++
		return map[string]int{"n": order}, nil
	}}
	c := newToolClient(t, wait, next)
	c.say(`{"jsonrpc":"2.0","id":"w","method":"tools/call","params":{"name":"wait"}}`)
	<-began
	for i := range mostWaiting {
		c.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"next"}}`, i))
	}
	c.wants(`{"jsonrpc":"2.0","id":"w","method":"tools/call","params":{"name":"next"}}`, `"id":null,"error":{"code":-32600`)
	c.wants(`{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"next"}}`, `"id":"x","error":{"code":-32603`)
	c.wants(`{"jsonrpc":"2.0","id":"p","method":"ping"}`, `"id":"p","result"`)
	c.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)
	c.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"w"}}`)
	n := 0
	for i := range mostWaiting {
		if i == 7 {
			continue
		}
		n++
		if got := c.hear(); !strings.HasPrefix(got, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,`, i)) || !strings.Contains(got, fmt.Sprintf(`{"n":%d}`, n)) {
			t.Errorf("answer %d is %s", i, got)
		}
	}
	c.say(`{"jsonrpc":"2.0","id":"last","method":"tools/call","params":{"name":"next"}}`)
	c.in.Close() // the call counts, although the client has left
	if got := c.hear(); !strings.Contains(got, `"id":"last"`) {
		t.Errorf("the last answer is %s", got)
	}
}

// TestAToolServerEndsBeforeAClientThatDoesNotRead: it gives back what the agent
// has, and may not wait for room in its queue of answers.
func TestAToolServerEndsBeforeAClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	stdin, in := io.Pipe()
	defer in.Close()
	out, stdout := io.Pipe()
	defer out.Close()
	ended := make(chan error, 1)
	box := &Toolbox{Name: "box", Version: "v1", Tools: []Tool{echo()}, Refusal: func(error) (string, any) { return "no", nil }}
	go func() { ended <- ServeTools(ctx, stdin, stdout, box) }()
	full := make(chan struct{})
	go func() {
		defer close(full)
		for i := 0; ; i++ {
			wrote := time.AfterFunc(time.Second, cancel) // the server reads no more
			_, err := fmt.Fprintf(in, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo","arguments":{"text":"x"}}}`+"\n", i)
			if wrote.Stop(); err != nil {
				return
			}
		}
	}()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(testenv.Patience):
		t.Error("the server does not end")
	}
	in.Close()
	<-full
}
