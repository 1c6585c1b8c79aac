package mcpservecmd

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/croft-dev/croft/cmd/croft/internal/backends"
	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// place is a database with leases and a ledger.
type place struct {
	t      *testing.T
	url    string
	ledger work.Ledger
}

func newPlace(t *testing.T) *place {
	t.Helper()
	url := "sqlite://" + filepath.Join(testenv.Memory(t), "croft.db")
	l, err := work.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return &place{t, url, l}
}

// add adds an item.
func (p *place) add(queue, payload string) work.ID {
	p.t.Helper()
	it, err := work.Enqueue(p.t.Context(), p.ledger, queue, []byte(payload), nil)
	if err != nil {
		p.t.Fatal(err)
	}
	return it.ID
}

func (p *place) item(id work.ID) work.Item {
	p.t.Helper()
	it, err := p.ledger.Get(p.t.Context(), id)
	if err != nil {
		p.t.Fatal(err)
	}
	return it
}

// take gives an item to another owner, and returns the secret of its grant.
func (p *place) take(id work.ID, owner string) tenure.Secret {
	p.t.Helper()
	req := work.Request{
		Verb: work.Takeover, ID: id, Owner: owner, Actor: "boss", Note: "reassigned", TTL: time.Hour,
		Secret: tenure.NewSecret(),
	}
	if a := p.ledger.Apply(p.t.Context(), []work.Request{req})[0]; a.Err != nil {
		p.t.Fatal(a.Err)
	}
	return req.Secret
}

// release lets an item wait again.
func (p *place) release(id work.ID, secret tenure.Secret) {
	p.t.Helper()
	req := work.Request{Verb: work.Release, ID: id, Token: p.item(id).Record.Token, Secret: secret}
	if a := p.ledger.Apply(p.t.Context(), []work.Request{req})[0]; a.Err != nil {
		p.t.Fatal(a.Err)
	}
}

// agent is a client of croft mcp serve.
type agent struct {
	t      *testing.T
	in     *io.PipeWriter
	lines  chan string
	ended  chan error
	stderr *lockedText
	id     int
}

func (p *place) app(owner string) (*cli.App, *lockedText) {
	said := &lockedText{}
	return &cli.App{
		StoreURL: p.url, StoreGiven: func() bool { return true }, Owner: owner, Timeout: testenv.Patience, Stderr: said,
		ConfigGiven: func() bool { return false },
	}, said
}

// usual are the flags of a server that may claim from q.
func usual() *flags {
	return &flags{queues: []string{"q"}, most: 1, ttl: time.Hour, stallAfter: time.Hour}
}

// agent starts a server for an agent.
func (p *place) agent(owner string, f *flags) *agent {
	p.t.Helper()
	app, said := p.app(owner)
	stdin, in := io.Pipe()
	out, stdout := io.Pipe()
	app.Stdin, app.Stdout = stdin, &cli.Sink{W: stdout}
	a := &agent{t: p.t, in: in, lines: make(chan string, 100), ended: make(chan error, 1), stderr: said}
	go func() {
		a.ended <- serve(context.WithoutCancel(p.t.Context()), app, f, "v1")
		_ = stdout.Close()
	}()
	go func() {
		defer close(a.lines)
		for scan := bufio.NewReader(out); ; {
			line, err := scan.ReadString('\n')
			if err != nil {
				return
			}
			a.lines <- line
		}
	}()
	p.t.Cleanup(a.leave)
	return a
}

// leave ends the agent, and waits for the end of the server.
func (a *agent) leave() {
	a.t.Helper()
	_ = a.in.Close()
	select {
	case err := <-a.ended:
		if err != nil {
			a.t.Errorf("the server: %v", err)
		}
		a.ended <- nil
	case <-time.After(testenv.Patience):
		a.t.Error("the server does not end")
	}
}

// reply is the answer to a call.
type reply struct {
	IsError           bool
	StructuredContent map[string]any
	Content           []struct{ Text string }
	Tools             []struct {
		Name        string
		InputSchema struct {
			Properties           map[string]any
			AdditionalProperties *bool
		}
		Annotations struct{ ReadOnlyHint bool }
	}
}

// ask sends a request and returns the result.
func (a *agent) ask(method, params string) (r reply) {
	a.t.Helper()
	a.id++
	if _, err := fmt.Fprintf(a.in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", a.id, method, params); err != nil {
		a.t.Fatal(err)
	}
	select {
	case line := <-a.lines:
		var m struct {
			ID     int
			Result *reply
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil || m.ID != a.id || m.Result == nil {
			a.t.Fatalf("%s %s was answered with %s; %s", method, params, line, a.stderr)
		}
		return *m.Result
	case <-time.After(testenv.Patience):
		a.t.Fatalf("no answer to %s %s; %s", method, params, a.stderr)
	}
	return r
}

// call calls a tool and returns its result. It must not be refused.
func (a *agent) call(tool string, args ...any) map[string]any {
	a.t.Helper()
	r := a.try(tool, args...)
	if r.IsError || len(r.Content) != 1 {
		a.t.Errorf("%s%v is answered with %+v", tool, args, r)
	}
	return r.StructuredContent
}

// refused calls a tool, which must be refused with a code.
func (a *agent) refused(code, tool string, args ...any) map[string]any {
	a.t.Helper()
	r := a.try(tool, args...)
	why, _ := r.StructuredContent["error"].(map[string]any)
	if !r.IsError || why["code"] != code || !strings.Contains(r.Content[0].Text, "Refused by croft ("+code+")") {
		a.t.Errorf("%s%v is answered with %+v, want %s", tool, args, r, code)
	}
	return why
}

// try calls a tool. The arguments are names and values in turn.
func (a *agent) try(tool string, args ...any) reply {
	a.t.Helper()
	all := map[string]any{}
	for i := 0; i < len(args); i += 2 {
		all[args[i].(string)] = args[i+1]
	}
	text, err := json.Marshal(map[string]any{"name": tool, "arguments": all})
	if err != nil {
		a.t.Fatal(err)
	}
	return a.ask("tools/call", string(text))
}

// hands returns the items of an agent without its server, for tests of the
// heartbeats.
func (p *place) hands(f *flags, l work.Ledger) *hands {
	p.t.Helper()
	app, _ := p.app("ann")
	s := &server{App: app, ledger: l, queues: f.queues}
	s.hands = newHands(s, f)
	return s.hands
}

// deaf is a ledger whose answers get lost while it is deaf.
type deaf struct {
	work.Ledger
	claims int // so many answers to claims get lost
}

var errLost = errors.New("the answer is lost")

func (d *deaf) Claim(ctx context.Context, c work.Claim) ([]work.Item, error) {
	items, err := d.Ledger.Claim(ctx, c)
	if d.claims--; d.claims >= 0 {
		return nil, fmt.Errorf("%w: %w", work.ErrUnknown, errLost)
	}
	return items, err
}

// lockedText is the standard error of a server.
type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
