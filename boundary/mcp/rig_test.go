package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/guard/current"
	"github.com/croft-dev/croft/guard/guardtest"
	"github.com/croft-dev/croft/internal/test/testenv"
)

func TestMain(m *testing.M) {
	cancelledWithin = 3 * time.Second
	os.Exit(m.Run())
}

// world is what the proxies of several agents share.
type world struct {
	store *mem.Store
	files files // what the upstreams have written

	mu    sync.Mutex
	marks map[string]*guardtest.Memory
}

func newWorld() *world {
	return &world{store: mem.New(nil), marks: map[string]*guardtest.Memory{}, files: files{texts: map[string]string{}}}
}

func (w *world) open(_ context.Context, resource string) (guard.Guard, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.marks[resource] == nil {
		w.marks[resource] = &guardtest.Memory{}
	}
	return w.marks[resource], nil
}

func (w *world) client(t *testing.T, owner string) *croft.Client {
	t.Helper()
	c := croft.New(w.store.Open(nil), &croft.Options{Owner: owner, CallTimeout: testenv.Patience})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// term grants a key to an owner, after its present one, and returns the stamp.
func (w *world) term(t *testing.T, owner string) fence.Stamp {
	t.Helper()
	c := w.client(t, owner)
	lease, err := c.Acquire(t.Context(), "tasks/a", &croft.LeaseOptions{TTL: time.Hour})
	if err != nil {
		_, err = w.client(t, "boss").Reserve(t.Context(), "tasks/a", owner, croft.ByHand{Note: "reassigned"})
		if err == nil || errors.Is(err, croft.ErrUnfenced) {
			lease, err = c.Acquire(t.Context(), "tasks/a", &croft.LeaseOptions{TTL: time.Hour})
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return lease.Stamp()
}

// follower asks the store who the current owner is.
func (w *world) follower(t *testing.T) guard.Current {
	t.Helper()
	f, err := current.Follow(w.store.Open(nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

// agent is a client with a proxy and an upstream of its own.
type agent struct {
	t        *testing.T
	toProxy  *io.PipeWriter
	replies  chan message // nil messages are not sent
	upstream *fake
	ended    chan error
	next     int
}

// agent starts an agent. Nothing in its options need be set.
func (w *world) agent(t *testing.T, stamp fence.Stamp, change func(*Options)) *agent {
	t.Helper()
	o := Options{
		Stamp: stamp, Marks: w.open, Client: w.client(t, "proxy"), TTL: time.Minute, Settle: time.Hour,
		Wait: testenv.Patience, AnswerWithin: testenv.Patience,
	}
	if change != nil {
		change(&o)
	}
	breakIt(t, &o)
	in, toProxy := io.Pipe()
	fromProxy, out := io.Pipe()
	a := &agent{
		t: t, toProxy: toProxy, replies: make(chan message, 1000), upstream: newFake(&w.files), ended: make(chan error, 1),
	}
	go func() {
		l := newLines(fromProxy)
		for {
			line, err := l.next()
			if err != nil {
				close(a.replies)
				return
			}
			m, err := decode(line)
			if err != nil && !strings.Contains(string(line), `"id":null`) {
				t.Errorf("the client got %s: %v", line, err)
			}
			a.replies <- m
		}
	}()
	go func() {
		a.ended <- serveVariant(context.WithoutCancel(t.Context()), in, out, a.upstream.upstream(), o)
		out.Close()
	}()
	t.Cleanup(func() {
		toProxy.Close()
		_ = a.wait()
	})
	return a
}

// wait waits until the proxy has ended.
func (a *agent) wait() error {
	a.t.Helper()
	select {
	case err := <-a.ended:
		a.ended <- err
		return err
	case <-time.After(testenv.Patience):
		a.t.Error("the proxy does not end")
		return nil
	}
}

// say sends a line.
func (a *agent) say(line string) {
	a.t.Helper()
	if _, err := io.WriteString(a.toProxy, line+"\n"); err != nil {
		a.t.Error(err)
	}
}

// hear returns the next message for the client.
func (a *agent) hear() message {
	a.t.Helper()
	select {
	case m := <-a.replies:
		return m
	case <-time.After(testenv.Patience):
		a.t.Fatal("no message came")
		return message{}
	}
}

// ask sends a request and returns the next message.
func (a *agent) ask(method, params string) message {
	a.t.Helper()
	a.next++
	a.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, a.next, method, params))
	m := a.hear()
	if m.id != fmt.Sprint(a.next) {
		a.t.Errorf("%s %s was answered with %s", method, params, encode(m.body))
	}
	return m
}

// tool calls a tool and returns the text of the result, or the code of the
// refusal.
func (a *agent) tool(name, arguments string) string {
	a.t.Helper()
	return outcome(a.ask("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, name, arguments)))
}

func outcome(m message) string {
	if code := m.result().object("_meta").object("croft/refusal").text("code"); code != "" {
		return code
	}
	content, _ := m.result().get("content")
	if l, ok := content.(list); ok && len(l) == 1 {
		return l[0].(object).text("text")
	}
	return string(encode(m.body))
}

// want checks an outcome.
func want(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %s, want %s", what, got, want)
	}
}

// files is what the upstreams of all agents write to.
type files struct {
	mu    sync.Mutex
	texts map[string]string
}

func (f *files) write(path, text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.texts[path] = text
}

func (f *files) read(path string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.texts[path]
}

// fake is an upstream in this process.
type fake struct {
	files  *files
	in     *io.PipeReader
	toFake *io.PipeWriter
	out    *io.PipeReader
	toOut  *io.PipeWriter
	held   chan string  // the ids of calls of the tool hold
	thaw   chan bool    // ends a call of the tool stall, which reads nothing
	begun  atomic.Int32 // how many messages the proxy has begun to write

	mu   sync.Mutex
	seen []string // what it has read
}

func newFake(fs *files) *fake {
	f := &fake{files: fs, held: make(chan string, 100), thaw: make(chan bool, 1)}
	f.in, f.toFake = io.Pipe()
	f.out, f.toOut = io.Pipe()
	go f.serve()
	return f
}

func (f *fake) upstream() Upstream {
	return Upstream{In: f, Out: f.out, Kill: func(context.Context) error { f.die(); return nil }}
}

// Write takes what the proxy writes.
func (f *fake) Write(b []byte) (int, error) {
	f.begun.Add(1)
	return f.toFake.Write(b)
}

func (f *fake) Close() error { return f.toFake.Close() }

// die ends the upstream.
func (f *fake) die() {
	f.in.CloseWithError(io.ErrClosedPipe)
	f.toOut.Close()
}

// sees reports what the upstream has read since the last call.
func (f *fake) sees() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	seen := strings.Join(f.seen, "\n")
	f.seen = nil
	return seen
}

func (f *fake) say(line string) { _, _ = io.WriteString(f.toOut, line+"\n") }

// answer answers a call with a text.
func (f *fake) answer(id, text string) {
	f.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":%q}]}}`, id, text))
}

func (f *fake) serve() {
	scan := bufio.NewScanner(f.in)
	scan.Buffer(nil, 2*MaxFrame)
	for scan.Scan() {
		f.mu.Lock()
		f.seen = append(f.seen, scan.Text())
		f.mu.Unlock()
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct {
				Name      string
				Arguments struct{ Path, Text any }
			}
		}
		if err := json.Unmarshal(scan.Bytes(), &m); err != nil || m.ID == nil || m.Method == "" {
			continue
		}
		id := string(m.ID)
		path, text := fmt.Sprint(m.Params.Arguments.Path), fmt.Sprint(m.Params.Arguments.Text)
		switch m.Method + " " + m.Params.Name {
		case "tools/call write_file":
			f.files.write(path, text)
			f.answer(id, "written")
		case "tools/call read_file":
			f.answer(id, f.files.read(path))
		case "tools/call hold":
			f.held <- id
		case "tools/call stall":
			<-f.thaw
			f.answer(id, "thawed")
		case "tools/call task":
			f.say(`{"jsonrpc":"2.0","id":` + id + `,"result":{"resultType":"task","taskId":"t"}}`)
		case "tools/list ":
			f.say(`{"jsonrpc":"2.0","id":` + id + `,"result":{"tools":[` +
				`{"name":"read_file","annotations":{"readOnlyHint":true},"execution":{"taskSupport":"optional","x":1}},` +
				`{"name":"write_file","annotations":{"readOnlyHint":"true"}}]}}`)
		case "initialize ", "server/discover ":
			f.say(`{"jsonrpc":"2.0","id":` + id + `,"result":{"capabilities":{"tools":{},"tasks":{},` +
				`"extensions":{"x/y":{},"io.modelcontextprotocol/tasks":{}}}}}`)
		default:
			f.say(`{"jsonrpc":"2.0","id":` + id + `,"result":{}}`)
		}
	}
	f.toOut.Close()
}
