package mcp

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/test/testenv"
)

// soon is how long something takes that a test waits for.
const soon = 3 * time.Second

// rules parses valid rules.
func rules(t *testing.T, texts ...string) []Rule {
	t.Helper()
	var all []Rule
	for _, text := range texts {
		r, err := ParseRule(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// TestReadsAndNotificationsPassUnchanged: in the revisions with initialize and
// in those without, in both directions, whether or not there is a stamp.
func TestReadsAndNotificationsPassUnchanged(t *testing.T) {
	t.Parallel()
	a := newWorld().agent(t, fence.Stamp{}, nil)
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}`,
		`{"jsonrpc":"2.0","id":"x-1","method":"prompts/list","params":{"cursor":"ü"}}`,
		`{"jsonrpc":"2.0","id":"01","method":"resources/read","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"},"uri":"a"}}`,
	} {
		a.say(line)
		m := a.hear()
		want(t, "the upstream got", a.upstream.sees(), line)
		if id, _ := m.body.get("id"); !strings.Contains(line, `"id":`+string(encode(id))) {
			t.Errorf("%s was answered with %s", line, encode(m.body))
		}
	}
	a.say(`{"jsonrpc":"2.0","method":"notifications/anything","params":{"n":1.50}}`)
	for _, line := range []string{
		`{"jsonrpc":"2.0","method":"notifications/whatever","params":{"n":1.50}}`,
		`{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"message":"?"}}`,
	} {
		a.upstream.say(line)
		want(t, "the client got", string(encode(a.hear().body)), line)
	}
	a.say(`{"jsonrpc":"2.0","id":1,"result":{"action":"accept"}}`)
	a.ask("ping", "{}")
	want(t, "the upstream got", a.upstream.sees(),
		`{"jsonrpc":"2.0","method":"notifications/anything","params":{"n":1.50}}`+"\n"+
			`{"jsonrpc":"2.0","id":1,"result":{"action":"accept"}}`+"\n"+
			`{"jsonrpc":"2.0","id":1,"method":"ping","params":{}}`)
}

// TestAReplacedAgentsCallBounces: the refusal names the owner of the task, and
// the server sees nothing of the call. The agent's reads pass.
func TestAReplacedAgentsCallBounces(t *testing.T) {
	t.Parallel()
	w := newWorld()
	follow := func(o *Options) { o.Current, o.Reads = w.follower(t), []string{"read_file"} }
	ann := w.agent(t, w.term(t, "ann"), follow)
	want(t, "ann", ann.tool("write_file", `{"path":"f","text":"ann's"}`), "written")
	bob := w.agent(t, w.term(t, "bob"), follow)
	want(t, "bob", bob.tool("write_file", `{"path":"f","text":"bob's"}`), "written")
	ann.upstream.sees()
	m := ann.ask("tools/call", `{"name":"write_file","arguments":{"path":"f","text":"ann's again"}}`)
	want(t, "ann, who is replaced", outcome(m), "not_owned")
	text := string(encode(m.body))
	for _, part := range []string{`"isError":true`, `Stop this work`, `The task tasks/a now belongs to bob`, `"owner":"bob"`, `"sent":false`} {
		if !strings.Contains(text, part) {
			t.Errorf("the refusal is %s, without %s", text, part)
		}
	}
	for _, recipe := range []string{"takeover", "acquire", "resume", "reset", "croft proxy", "resultType"} {
		if strings.Contains(text, recipe) {
			t.Errorf("the refusal %s names %s", text, recipe)
		}
	}
	want(t, "the server saw", ann.upstream.sees(), "")
	want(t, "the file", ann.tool("read_file", `{"path":"f"}`), "bob's")
	m = ann.ask("tools/call", `{"name":"write_file","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}`)
	want(t, "a refusal says that it is complete", m.result().text("resultType"), "complete")
}

// TestTheMarkRefusesWithoutTheStore: the gate asks nobody who owns the key.
func TestTheMarkRefusesWithoutTheStore(t *testing.T) {
	t.Parallel()
	w := newWorld()
	ann, bob := w.agent(t, w.term(t, "ann"), nil), w.agent(t, w.term(t, "bob"), nil)
	want(t, "bob", bob.tool("write_file", `{}`), "written")
	want(t, "ann", ann.tool("write_file", `{}`), "stale")
	want(t, "bob again", bob.tool("write_file", `{}`), "written")
}

// TestNobodyWritesWithoutAStamp: no message can bring one.
func TestNobodyWritesWithoutAStamp(t *testing.T) {
	t.Parallel()
	w := newWorld()
	stamp := w.term(t, "ann").String()
	a := w.agent(t, fence.Stamp{}, func(o *Options) { o.Reads = []string{"read_file"} })
	m := a.ask("tools/call", fmt.Sprintf(`{"name":"write_file","arguments":{"croft":%q},"_meta":{"croft/stamp":%q}}`, stamp, stamp))
	want(t, "a write", outcome(m), "invalid")
	want(t, "the server saw", a.upstream.sees(), "")
	want(t, "a read", a.tool("read_file", `{"path":"f"}`), "")
}

// TestMembersThatNameCroftAreRemoved: the server must not take them for ours.
func TestMembersThatNameCroftAreRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld()
	a := w.agent(t, w.term(t, "ann"), nil)
	a.ask("tools/call", `{"name":"write_file","arguments":{"croft":1,"CROFT_STAMP":2,"crofter":3,"croft-x":4,"a":{"croft":5}},`+
		`"_meta":{"croft/stamp":6,"Croft":7,"progressToken":8}}`)
	_, call, _ := strings.Cut(a.upstream.sees(), `"method"`)
	want(t, "the server saw", call, `:"tools/call","params":`+
		`{"name":"write_file","arguments":{"crofter":3,"a":{"croft":5}},"_meta":{"progressToken":8}}}`)
	a.ask("ping", `{"_meta":{"croft":1}}`)
	want(t, "the server saw", a.upstream.sees(), `{"jsonrpc":"2.0","id":2,"method":"ping","params":{"_meta":{}}}`)
}

// TestBadMessagesReachNobody, and the session goes on.
func TestBadMessagesReachNobody(t *testing.T) {
	t.Parallel()
	w := newWorld()
	dropped := make(chan error, 10)
	a := w.agent(t, w.term(t, "ann"), func(o *Options) { o.Dropped = func(err error) { dropped <- err } })
	for _, line := range []string{
		`[` + toolCall(`{"name":"write_file"}`) + `]`,
		strings.Replace(toolCall(`{}`), `"id"`, `"Id":2,"id"`, 1),
		`{"jsonrpc":"2.0","id":null,"method":"tools/call","params":{"name":"write_file"}}`,
		strings.Repeat(" ", MaxFrame) + toolCall(`{"name":"write_file"}`),
	} {
		a.say(line)
		if got := string(encode(a.hear().body)); !strings.Contains(got, `"id":null,"error":{"code":-32600`) {
			t.Errorf("%.100s was answered with %s", line, got)
		}
	}
	for method, code := range map[string]string{"tools/write": "-32601", "tasks/cancel": "-32601", "Tools/call": "-32601"} {
		if got := string(encode(a.ask(method, "{}").body)); !strings.Contains(got, code) {
			t.Errorf("%s was answered with %s", method, got)
		}
	}
	for params, code := range map[string]string{
		`"method":"ping","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}`:       "-32601",
		`"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2027-01-01"}}`: `-32022,"message":"croft: the proxy does not know this revision of the protocol; nothing was sent on","data":{"supported":["2026-07-28"]`,
		`"method":"server/discover"`: "-32601",
	} {
		a.say(`{"jsonrpc":"2.0","id":"r",` + params + `}`)
		if got := string(encode(a.hear().body)); !strings.Contains(got, code) {
			t.Errorf("%s was answered with %s", params, got)
		}
	}
	want(t, "the server saw", a.upstream.sees(), "")
	a.upstream.say("listening on stdio")
	a.upstream.say(`{"jsonrpc":"2.0","id":7,"result":{}}`) // an answer to nothing
	if err := <-dropped; !strings.Contains(err.Error(), "not JSON") {
		t.Errorf("the upstream's chatter: %v", err)
	}
	want(t, "a call after that", a.tool("write_file", `{}`), "written")
}

// TestAnIdIsInUseUntilItIsAnswered: otherwise one answer could belong to two
// calls.
func TestAnIdIsInUseUntilItIsAnswered(t *testing.T) {
	t.Parallel()
	w := newWorld()
	a := w.agent(t, w.term(t, "ann"), nil)
	a.say(`{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"hold"}}`)
	id := <-a.upstream.held
	a.say(`{"jsonrpc":"2.0","id":"\u0078","method":"tools/call","params":{"name":"write_file"}}`)
	if got := string(encode(a.hear().body)); !strings.Contains(got, "-32600") {
		t.Errorf("the same id was answered with %s", got)
	}
	a.upstream.answer(id, "done")
	want(t, "the first", outcome(a.hear()), "done")
}

// TestRulesNameResources: by arguments, and for one key.
func TestRulesNameResources(t *testing.T) {
	t.Parallel()
	w := newWorld()
	a := w.agent(t, w.term(t, "ann"), func(o *Options) {
		o.Rules = rules(t, "hold as files/{path}", "write_file as files/{path}", "other for tasks/b")
	})
	a.say(`{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"hold","arguments":{"path":"f"}}}`)
	id := <-a.upstream.held
	want(t, "another resource, meanwhile", a.tool("write_file", `{"path":"g"}`), "written")
	a.upstream.answer(id, "done")
	want(t, "the first", outcome(a.hear()), "done")
	want(t, "another key's", a.tool("other", `{}`), "wrong_key")
	for what, arguments := range map[string]string{
		"no argument":                `{}`,
		"an empty one":               `{"path":""}`,
		"a list":                     `{"path":["f"]}`,
		"a fraction":                 `{"path":1.0}`,
		"an integer that is rounded": `{"path":9007199254740993}`,
		"another resource's name":    `{"path":"../g"}`,
		"a name with two spellings":  `{"path":"f//g"}`,
		"an argument in two cases":   `{"path":"f","Path":"g"}`,
	} {
		want(t, what, a.tool("write_file", arguments), "invalid")
	}
	want(t, "no rule", a.tool("delete", `{}`), "invalid")
	want(t, "an integer", a.tool("write_file", `{"path":9007199254740991}`), "written")
}

// TestAnnotationsCountIfTheyAreTrusted: and until the tools change.
func TestAnnotationsCountIfTheyAreTrusted(t *testing.T) {
	t.Parallel()
	w := newWorld()
	for trusted, reads := range map[bool]string{true: "", false: "invalid"} {
		a := w.agent(t, fence.Stamp{}, func(o *Options) { o.TrustAnnotations = trusted })
		want(t, "before the tools are known", a.tool("read_file", `{"path":"f"}`), "invalid")
		a.ask("tools/list", "{}")
		want(t, "a read", a.tool("read_file", `{"path":"f"}`), reads)
		want(t, "a hint that is no bool", a.tool("write_file", `{}`), "invalid")
		a.upstream.say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		a.hear()
		want(t, "when the tools have changed", a.tool("read_file", `{"path":"f"}`), "invalid")
	}
}

// TestTasksAreHidden from both sides, unless they are wanted. Then their
// updates and cancellations are writes.
func TestTasksAreHidden(t *testing.T) {
	t.Parallel()
	w := newWorld()
	const able = `{"roots":{},"tasks":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}`
	a := w.agent(t, w.term(t, "ann"), nil)
	for _, ask := range []struct{ method, params string }{
		{"initialize", `{"capabilities":` + able + `}`},
		{"server/discover", `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":` + able + `}}`},
		{"tools/list", `{}`},
	} {
		got := string(encode(a.ask(ask.method, ask.params).body))
		if seen := a.upstream.sees(); strings.Contains(got, "task") || strings.Contains(seen, "task") {
			t.Errorf("%s: the server saw %s, and the client %s", ask.method, seen, got)
		}
	}
	if got := string(encode(a.ask("tools/call", `{"name":"write_file","task":{"ttl":1}}`).body)); !strings.Contains(got, "-32601") {
		t.Errorf("a call that wants to be a task was answered with %s", got)
	}
	want(t, "the server saw", a.upstream.sees(), "")
	want(t, "a call that becomes a task unasked", a.tool("task", `{}`), "unknown")

	none := w.agent(t, fence.Stamp{}, func(o *Options) { o.Tasks = true })
	if got := string(encode(none.ask("tasks/get", `{"taskId":"t"}`).body)); strings.Contains(got, "refusal") {
		t.Errorf("a look at a task: %s", got)
	}
	want(t, "a cancellation without a stamp", outcome(none.ask("tasks/cancel", `{"taskId":"t"}`)), "invalid")
	want(t, "an update", outcome(none.ask("tasks/update", `{"taskId":"t","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}`)), "invalid")
}

// TestDoubtClosesTheResource: whatever the reason, the upstream is dead before
// the resource closes, and the next agent waits until it has settled.
func TestDoubtClosesTheResource(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Options)
		act    func(a *agent)
		quiet  bool // the client wants no answer
	}{
		"the upstream dies":    {act: func(a *agent) { a.upstream.die() }},
		"no answer in time":    {change: func(o *Options) { o.AnswerWithin = soon }},
		"the client cancels":   {act: func(a *agent) { a.say(cancel) }, quiet: true},
		"the client goes away": {change: func(o *Options) { o.AnswerWithin = soon }, act: func(a *agent) { a.toProxy.Close() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			stamp := w.term(t, "ann")
			a := w.agent(t, stamp, c.change)
			a.say(`{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"hold"}}`)
			<-a.upstream.held
			if c.act != nil {
				c.act(a)
			}
			if !c.quiet {
				m := a.hear()
				want(t, "the call", outcome(m), "unknown")
				if !strings.Contains(string(encode(m.body)), `"sent":true`) {
					t.Errorf("the call was answered with %s", encode(m.body))
				}
			}
			if err := a.wait(); err == nil || !strings.Contains(err.Error(), "in doubt") {
				t.Errorf("the proxy ended with %v", err)
			}
			if _, err := a.upstream.toFake.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
				t.Error("the upstream lives")
			}
			next := w.agent(t, stamp, func(o *Options) { o.Wait = soon })
			want(t, "the next agent", next.tool("write_file", `{}`), "unknown")
			want(t, "the server saw", next.upstream.sees(), "")
			next.toProxy.Close()
			_ = next.wait()
			later := w.agent(t, stamp, func(o *Options) { o.Settle = time.Millisecond })
			want(t, "when it has settled", later.tool("write_file", `{}`), "written")
		})
	}
}

const cancel = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"x"}}`

// TestACancelledCallThatIsAnsweredIsInNoDoubt: the server may say how it has
// ended. The client hears nothing of it.
func TestACancelledCallThatIsAnsweredIsInNoDoubt(t *testing.T) {
	t.Parallel()
	w := newWorld()
	a := w.agent(t, w.term(t, "ann"), nil)
	a.say(`{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"hold"}}`)
	id := <-a.upstream.held
	// A call that waits for its turn is not sent at all.
	a.say(`{"jsonrpc":"2.0","id":"y","method":"tools/call","params":{"name":"hold"}}`)
	a.say(strings.Replace(cancel, `"x"`, `"y"`, 1))
	a.ask("ping", "{}") // now the proxy has read both
	a.upstream.sees()
	a.upstream.answer(id, "stopped")
	want(t, "the first", outcome(a.hear()), "stopped")
	want(t, "another call", a.tool("write_file", `{}`), "written")
	if seen := a.upstream.sees(); strings.Count(seen, "tools/call") != 1 || strings.Contains(seen, "cancelled") {
		t.Errorf("the server saw %s", seen)
	}
	a.say(`{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"hold"}}`)
	id = <-a.upstream.held
	a.say(cancel)
	for end := time.Now().Add(testenv.Patience); !strings.Contains(a.upstream.sees(), "notifications/cancelled"); {
		if time.Now().After(end) {
			t.Fatal("the server has not heard of the cancellation")
		}
		time.Sleep(time.Millisecond)
	}
	a.upstream.answer(id, "stopped")
	want(t, "the call after the cancelled one", a.tool("write_file", `{}`), "written")
}

// TestAFrozenClientKeepsNothingFromOthers: its answer is not read, and its
// resource is free.
func TestAFrozenClientKeepsNothingFromOthers(t *testing.T) {
	t.Parallel()
	w := newWorld()
	stamp := w.term(t, "ann")
	in, toProxy := io.Pipe()
	_, out := io.Pipe() // nobody reads
	f := newFake(&w.files)
	ended := make(chan error, 1)
	go func() {
		ended <- Serve(t.Context(), in, out, f.upstream(), Options{
			Stamp: stamp, Marks: w.open, Client: w.client(t, "proxy"), TTL: time.Minute,
		})
	}()
	if _, err := io.WriteString(toProxy, toolCall(`{"name":"write_file","arguments":{"path":"f","text":"ann's"}}`)+"\n"); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(testenv.Patience); w.files.read("f") == "" && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	bob := w.agent(t, w.term(t, "bob"), nil)
	want(t, "bob", bob.tool("write_file", `{"path":"f","text":"bob's"}`), "written")
	toProxy.Close()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(testenv.Patience):
		t.Error("the proxy does not end")
	}
}

// TestAProxyWaitsForItsNeighbour: the proxies of two agents of one task take
// turns, and none is refused for that.
func TestAProxyWaitsForItsNeighbour(t *testing.T) {
	t.Parallel()
	w := newWorld()
	stamp := w.term(t, "ann")
	one, two := w.agent(t, stamp, nil), w.agent(t, stamp, nil)
	one.say(`{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"hold"}}`)
	id := <-one.upstream.held
	two.say(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"write_file"}}`)
	two.ask("ping", "{}")
	one.upstream.answer(id, "done")
	want(t, "the first", outcome(one.hear()), "done")
	want(t, "the second", outcome(two.hear()), "written")
}
