package mcp

import (
	"fmt"
	"strings"
	"testing"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/admission/overhttp"
)

// TestACallIsNotCarriedOutTwice: a client that has lost the answer calls again
// under another id, in another order of members, over both transports.
func TestACallIsNotCarriedOutTwice(t *testing.T) {
	t.Parallel()
	w := newWorld()
	ann := w.term(t, "ann")
	a := w.agent(t, ann, func(o *Options) { o.Idempotent = true })
	u := w.web(t, func(o *ProxyOptions) { o.Idempotent = true })
	const first, again = `{"name":"write_file","arguments":{"path":"f","text":{"a":1,"b":2}},"_meta":{"progressToken":1}}`,
		`{"arguments":{"text":{"b":2,"a":1},"path":"f"},"_meta":{"progressToken":2},"name":"write_file"}`
	overHTTP := func(stamp fence.Stamp, id, params string) string {
		return u.ask("POST", `{"jsonrpc":"2.0","id":`+id+`,"method":"tools/call","params":`+params+`}`, overhttp.Header, stamp.String()).text
	}
	for transport, c := range map[string]struct {
		call func(id, params string) string
		seen func() string
	}{
		"stdio": {func(_, params string) string { return string(encode(a.ask("tools/call", params).body)) }, a.upstream.sees},
		"HTTP":  {func(id, params string) string { return overHTTP(ann, id, params) }, u.sees},
	} {
		if got := c.call("1", first); strings.Contains(got, "croft") || !strings.Contains(got, "written") {
			t.Errorf("%s: the first call was answered with %s", transport, got)
		}
		if seen := c.seen(); !strings.Contains(seen, "write_file") {
			t.Errorf("%s: the server saw %s", transport, seen)
		}
		got := c.call("2", again)
		want(t, transport+": the same call", got, `{"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"written"}],"_meta":{"croft/answered":"before"}}}`)
		want(t, transport+": the server saw", c.seen(), "")
		for what, params := range map[string]string{
			"another argument": strings.Replace(first, `"b":2`, `"b":3`, 1),
			"another round":    strings.Replace(first, `"name"`, `"requestState":"x","name"`, 1),
			"another number":   strings.Replace(first, `"b":2`, `"b":2.0`, 1),
		} {
			c.call("3", params)
			if seen := c.seen(); !strings.Contains(seen, "write_file") {
				t.Errorf("%s: %s did not reach the server", transport, what)
			}
		}
	}
	bob := w.term(t, "bob")
	overHTTP(bob, "4", first)
	if seen := u.sees(); !strings.Contains(seen, "write_file") {
		t.Error("the same call of another owner did not reach the server")
	}
	if got := overHTTP(ann, "5", first); !strings.Contains(got, `"code":"stale"`) {
		t.Errorf("a replaced owner got its answer again: %s", got)
	}
}

// TestANumberedCallIsAnsweredAgain: the mark refuses its number, and the answer
// is known.
func TestANumberedCallIsAnsweredAgain(t *testing.T) {
	t.Parallel()
	w := newWorld()
	stamp := w.term(t, "ann")
	stamp.Seq = 5
	u := w.web(t, func(o *ProxyOptions) { o.Idempotent = true })
	want(t, "a call", u.tool(stamp, "write_file", "{}"), "written")
	u.sees()
	want(t, "the same number", u.tool(stamp, "write_file", "{}"), "written")
	want(t, "the same number for another call", u.tool(stamp, "write_file", `{"path":"g"}`), "repeated")
	want(t, "the server saw", u.sees(), "")
	stamp.Seq = 6
	want(t, "another number", u.tool(stamp, "write_file", "{}"), "written")
	if seen := u.sees(); !strings.Contains(seen, "write_file") {
		t.Error("a call with a number of its own did not reach the server")
	}
}

// TestOnlySuccessIsKept: after a failure an agent may try again, and a result
// that asks for more is no answer yet.
func TestOnlySuccessIsKept(t *testing.T) {
	t.Parallel()
	a := newAnswers(mostAnswerBytes)
	for i, text := range []string{
		`{"isError":true}`, `{"resultType":"input_required"}`, `{"resultType":"task"}`, `{"task":{}}`,
		`{"x":"` + strings.Repeat("x", longestAnswer) + `"}`, `null`,
	} {
		value, err := parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		result, _ := value.(object)
		a.put(fingerprint{byte(i)}, result)
		if _, kept := a.answer(fingerprint{byte(i)}, message{}); kept {
			t.Errorf("%.100s was kept", text)
		}
	}
}

// TestKeptAnswersAreBounded: in number and in bytes. The oldest go first.
func TestKeptAnswersAreBounded(t *testing.T) {
	t.Parallel()
	const bytes = 1 << 20
	for name, c := range map[string]struct{ size, most int }{
		"many":  {1, mostAnswers},
		"large": {bytes / 10, 9},
	} {
		a := newAnswers(bytes)
		result := object{{"x", strings.Repeat("x", c.size)}}
		call := func(i int) fingerprint { return fingerprint{byte(i), byte(i >> 8)} }
		for i := range c.most + 2 {
			a.put(call(i), result)
		}
		if len(a.kept) != c.most || len(a.order) != len(a.kept) || a.size > bytes {
			t.Errorf("%s: %d answers of %d bytes are kept", name, len(a.kept), a.size)
		}
		for i, kept := range map[int]bool{0: false, 1: false, c.most + 1: true} {
			if _, is := a.answer(call(i), message{}); is != kept {
				t.Errorf("%s: answer %d is kept: %v", name, i, is)
			}
		}
	}
}

// TestACallThatFailedIsMadeAgain, and one in doubt is not answered.
func TestACallThatFailedIsMadeAgain(t *testing.T) {
	t.Parallel()
	w := newWorld()
	stamp := w.term(t, "ann")
	u := w.web(t, func(o *ProxyOptions) { o.Idempotent, o.Settle, o.AnswerWithin = true, soon, soon })
	for _, name := range []string{"gone", "unreadable id", "cut"} {
		for range 2 {
			u.tool(stamp, name, "{}")
			if seen := u.sees(); !strings.Contains(seen, fmt.Sprintf("%q", name)) {
				t.Errorf("%s did not reach the server", name)
			}
		}
	}
}
