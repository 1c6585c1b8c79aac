package mcp

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/test/testenv"
)

// TestACallWithoutAnIDReachesNobody: a careless server may carry it out.
func TestACallWithoutAnIDReachesNobody(t *testing.T) {
	t.Parallel()
	a := newWorld().agent(t, fence.Stamp{}, nil)
	for _, method := range []string{"tools/call", "tasks/cancel", "anything"} {
		a.say(fmt.Sprintf(`{"jsonrpc":"2.0","method":%q,"params":{"name":"write_file"}}`, method))
		if got := string(encode(a.hear().body)); !strings.Contains(got, `"id":null,"error":{"code":-32600`) {
			t.Errorf("%s without an id was answered with %s", method, got)
		}
	}
	want(t, "the server saw", a.upstream.sees(), "")
}

// TestALateAnswerEndsNoWrite: the client has cancelled a read and uses its id
// again. The answer to the read must not free the resource of the write. Some
// servers also take ids for one another: 2^53+1 for 2^53, or "5" for 5.
func TestALateAnswerEndsNoWrite(t *testing.T) {
	t.Parallel()
	w := newWorld()
	stamp := w.term(t, "ann")
	a := w.agent(t, stamp, func(o *Options) { o.Reads = []string{"slow_read"} })
	a.say(`{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"slow_read"}}`)
	a.hear()
	a.say(cancel)
	a.say(`{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"hold"}}`)
	id := <-a.upstream.held
	a.upstream.answer(`"x"`, "the late answer to the read")
	a.upstream.answer(id, "done")
	m := a.hear()
	want(t, "the write", outcome(m), "done")
	want(t, "its id", m.id, `"x"`)
}

// TestWritesReachTheServerInOrder: a client need not wait for an answer before
// it makes the next call.
func TestWritesReachTheServerInOrder(t *testing.T) {
	t.Parallel()
	w := newWorld()
	a := w.agent(t, w.term(t, "ann"), nil)
	const calls = 100
	for i := range calls {
		a.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"write_file","arguments":{"text":"<%d>"}}}`, i, i))
	}
	for range calls {
		want(t, "a write", outcome(a.hear()), "written")
	}
	seen := a.upstream.sees()
	for i := range calls {
		_, after, found := strings.Cut(seen, fmt.Sprintf("<%d>", i))
		if !found {
			t.Fatalf("the server saw write %d out of order or not at all", i)
		}
		seen = after
	}
}

// TestAWriteThatWaitsOvertakesNone: also if one between them is cancelled.
func TestAWriteThatWaitsOvertakesNone(t *testing.T) {
	t.Parallel()
	w := newWorld()
	stamp := w.term(t, "ann")
	first, a := w.agent(t, stamp, nil), w.agent(t, stamp, nil)
	first.say(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hold"}}`)
	id := <-first.upstream.held
	for _, id := range []string{`"a"`, `"x"`, `"b"`} {
		a.say(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"write_file","arguments":{"text":` + id + `}}}`)
	}
	a.say(cancel)
	a.ask("ping", "{}")
	first.upstream.answer(id, "done")
	for range 2 { // the answers may come in any order
		m := a.hear()
		want(t, "the answer to "+m.id, outcome(m), "written")
	}
	seen := a.upstream.sees()
	if at := strings.Index(seen, `"text":"a"`); at < 0 || !strings.Contains(seen[at:], `"text":"b"`) || strings.Contains(seen, `"text":"x"`) {
		t.Errorf("the server saw %s", seen)
	}
}

// TestAnUnsentWriteIsInNoDoubt: a server that does not read keeps a write from
// being sent. That does not close the resource.
func TestAnUnsentWriteIsInNoDoubt(t *testing.T) {
	t.Parallel()
	w := newWorld()
	stamp := w.term(t, "ann")
	first := w.agent(t, stamp, nil)
	a := w.agent(t, stamp, func(o *Options) { o.AnswerWithin, o.Reads = soon, []string{"stall"} })
	first.say(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hold"}}`)
	id := <-first.upstream.held
	a.say(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"stall"}}`)
	a.say(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"write_file"}}`)
	a.say(`{"jsonrpc":"2.0","id":3,"method":"ping"}`) // it cannot be written
	for end := time.Now().Add(testenv.Patience); a.upstream.begun.Load() < 2; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the proxy does not begin to write")
		}
	}
	first.upstream.answer(id, "done")
	m := a.hear()
	if got := string(encode(m.body)); m.id != "2" || !strings.Contains(got, `"sent":false`) {
		t.Errorf("a write that could not be sent was answered with %s", got)
	}
	a.upstream.thaw <- true
	want(t, "what the server has read before", outcome(a.hear()), "thawed")
	a.hear()
	a.next = 3
	a.upstream.sees()
	want(t, "the next write", a.tool("write_file", "{}"), "written")
	if seen := a.upstream.sees(); strings.Count(seen, "tools/call") != 1 {
		t.Errorf("the server saw %s", seen)
	}
}

// TestARefusedRequestIsAnswered under its own id, so that its client does not
// wait. The id of another request is not touched.
func TestARefusedRequestIsAnswered(t *testing.T) {
	t.Parallel()
	w := newWorld()
	a := w.agent(t, w.term(t, "ann"), nil)
	for _, params := range []string{
		`{"name":"read_file","Name":"write_file"}`,
		`{"name":"write_file","arguments":{"text":"\ud800"}}`,
		`null`,
	} {
		a.say(toolCall(params))
		if got := string(encode(a.hear().body)); !strings.Contains(got, `"id":1,"error":{"code":-32600`) {
			t.Errorf("%s was answered with %s", params, got)
		}
	}
	a.say(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hold"}}`)
	id := <-a.upstream.held
	for _, line := range []string{toolCall(`null`), `{"jsonrpc":"2.0","id":"\ud800","method":"ping"}`} {
		a.say(line)
		if got := string(encode(a.hear().body)); !strings.Contains(got, `"id":null,"error":{"code":-32600`) {
			t.Errorf("%s was answered with %s", line, got)
		}
	}
	a.upstream.answer(id, "done")
	want(t, "the call under way", outcome(a.hear()), "done")
}

// TestAServerCannotSpeakAsCroft: programs take croft/refusal for the word of
// the proxy, and make a call again of which nothing was sent.
func TestAServerCannotSpeakAsCroft(t *testing.T) {
	t.Parallel()
	w := newWorld()
	a := w.agent(t, w.term(t, "ann"), nil)
	a.say(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hold"}}`)
	id := <-a.upstream.held
	const meta = `"_meta":{"croft/refusal":{"code":"stale","sent":false},"x":1}`
	a.upstream.say(`{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":{` + meta + `}}`)
	a.upstream.say(`{"jsonrpc":"2.0","id":` + id + `,"result":{` + meta + `}}`)
	for range 2 {
		if got := string(encode(a.hear().body)); strings.Contains(got, "croft") || !strings.Contains(got, `"_meta":{"x":1}`) {
			t.Errorf("the client got %s", got)
		}
	}
}

// TestTheOutboxIsBoundedInBytes: a server can flood a client that is frozen.
func TestTheOutboxIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	b := newOutbox()
	put := make(chan int, 100)
	go func() {
		defer close(put)
		for i := range 4 {
			b.put(strings.Repeat("x", MaxFrame))
			put <- i
		}
	}()
	for range 2 {
		<-put
	}
	select {
	case <-put:
		t.Error("the outbox takes more than two of the longest messages")
	case <-time.After(100 * time.Millisecond):
	}
	b.close()
	for range put {
	}
}

// TestHalfAnEmojiIsAnAnswer: servers cut texts without regard to surrogate
// pairs. Such an answer must not leave the call in doubt.
func TestHalfAnEmojiIsAnAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld()
	a := w.agent(t, w.term(t, "ann"), func(o *Options) { o.AnswerWithin = soon })
	a.say(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hold"}}`)
	a.upstream.say(`{"jsonrpc":"2.0","id":` + <-a.upstream.held + `,"result":{"content":[{"type":"text","text":"cut \ud83d"}]}}`)
	want(t, "the answer", outcome(a.hear()), "cut \ufffd")
}

// TestTheProxyEndsBehindAServerThatDoesNotRead: also if a message for the
// server cannot be written when the client leaves.
func TestTheProxyEndsBehindAServerThatDoesNotRead(t *testing.T) {
	t.Parallel()
	a := newWorld().agent(t, fence.Stamp{}, func(o *Options) { o.Reads = []string{"stall"} })
	a.say(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"stall"}}`)
	a.say(`{"jsonrpc":"2.0","id":2,"method":"ping"}`)
	a.toProxy.Close()
	if err := a.wait(); err != nil {
		t.Error(err)
	}
	a.upstream.thaw <- true
}

// TestNoMadeUpTokenPoisonsAMark: a token that no clock could reach is refused
// before the gate, with rules and without, and shuts the owner out of nothing.
func TestNoMadeUpTokenPoisonsAMark(t *testing.T) {
	t.Parallel()
	for _, texts := range [][]string{nil, {"* as files"}} {
		w := newWorld()
		stamp := w.term(t, "ann")
		options := func(o *Options) { o.Rules = rules(t, texts...) }
		forged := stamp
		forged.Token = 1<<53 - 1
		thief := w.agent(t, forged, options)
		want(t, "a made-up token", thief.tool("write_file", `{}`), "invalid")
		want(t, "the owner", w.agent(t, stamp, options).tool("write_file", `{}`), "written")
	}
}
