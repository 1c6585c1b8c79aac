package mcp

import (
	"fmt"
	"strings"
	"testing"

	"github.com/croft-dev/croft/fence"
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
