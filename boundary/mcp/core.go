package mcp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/admission"
)

// core is what both transports have in common: which calls are writes to what,
// how a write is let in, and what is known of the upstream's tools.
type core struct {
	o     Options
	gate  *admission.Gate
	hints hints
	// answers is nil unless calls that were answered are answered again.
	answers *answers
}

// newCore makes a core. The upstream may take answerWithin to answer a write if
// the options do not say.
func newCore(o Options, answerWithin time.Duration) (*core, error) {
	if err := o.usual(answerWithin); err != nil {
		return nil, err
	}
	gate, err := o.gate()
	if err != nil {
		return nil, err
	}
	c := &core{o: o, gate: gate, hints: hints{readOnly: map[string]bool{}}}
	if o.Idempotent {
		c.answers = newAnswers(mostAnswerBytes)
	}
	return c, nil
}

// kind says what becomes of a request of the client.
type kind int

const (
	read kind = iota
	write
	taskRead
	taskWrite
)

// era is a set of revisions of the protocol.
type era int

const (
	// sessions are the revisions that begin with initialize.
	sessions era = 1 << iota
	// sessionless are the revisions in which every request names its revision.
	sessionless
)

// newest is the revision without sessions that the proxy knows.
const newest = "2026-07-28"

// methods lists the methods of all revisions. Reads write nothing. The proxy
// does not know what another method does, so it refuses it.
var methods = map[string]struct {
	kind kind
	in   era
}{
	"initialize":               {read, sessions},
	"ping":                     {read, sessions},
	"logging/setLevel":         {read, sessions},
	"resources/subscribe":      {read, sessions},
	"resources/unsubscribe":    {read, sessions},
	"server/discover":          {read, sessionless},
	"subscriptions/listen":     {read, sessionless},
	"tools/list":               {read, sessions | sessionless},
	"prompts/list":             {read, sessions | sessionless},
	"prompts/get":              {read, sessions | sessionless},
	"resources/list":           {read, sessions | sessionless},
	"resources/templates/list": {read, sessions | sessionless},
	"resources/read":           {read, sessions | sessionless},
	"completion/complete":      {read, sessions | sessionless},
	"tools/call":               {write, sessions | sessionless},
	"tasks/get":                {taskRead, sessions | sessionless},
	"tasks/list":               {taskRead, sessions},
	"tasks/result":             {taskRead, sessions},
	"tasks/update":             {taskWrite, sessionless},
	"tasks/cancel":             {taskWrite, sessions | sessionless},
}

// revision returns the revision that a request names in its _meta, or "" if it
// belongs to a session.
func (m message) revision() string { return m.params.object("_meta").text(protocolVersion) }

// era returns the revisions to which a message belongs.
func (m message) era() era {
	if m.revision() != "" {
		return sessionless
	}
	return sessions
}

// classify says whether a request is a read or a write, and of a write, which
// tool it calls. Each round of a call of several rounds is a call of its own. A
// fault refuses the request.
func (c *core) classify(m message) (tool string, _ kind, _ *fault) {
	if r := m.revision(); r != "" && r != newest {
		return m.method, read, &fault{
			code: unknownRevision, say: "the proxy does not know this revision of the protocol; nothing was sent on",
			data: object{{"supported", list{newest}}, {"requested", r}},
		}
	}
	method, known := methods[m.method]
	if !known || method.in&m.era() == 0 {
		return m.method, read, &fault{
			code: methodNotFound,
			say:  "the proxy does not know this method in this revision, so it may write; nothing was sent on",
		}
	}
	_, wantsTask := m.params.get("task")
	isTask := method.kind == taskRead || method.kind == taskWrite
	if (isTask || wantsTask) && !c.o.Tasks {
		return m.method, read, &fault{code: methodNotFound, say: "tasks are not offered here; nothing was sent on"}
	}
	switch method.kind {
	case taskWrite:
		return m.method, write, nil
	case read, taskRead:
		return m.method, read, nil
	}
	tool = m.params.text("name")
	if slices.Contains(c.o.Reads, tool) || c.o.TrustAnnotations && c.hints.says(tool) {
		return tool, read, nil
	}
	return tool, write, nil
}

// target names the resource of a write, and checks its stamp. A task method is
// a tool of that name, and its params are the arguments. The error noStamp says
// why the write has no stamp.
func (c *core) target(m message, w *admission.Write, noStamp error) error {
	if noStamp != nil {
		return noStamp
	}
	if err := fence.CheckAhead(w.Stamp.Token, time.Now()); err != nil {
		return err
	}
	if err := c.o.Keys.Verify(w.Stamp); err != nil {
		return err
	}
	arguments := m.params.object("arguments")
	if m.method != "tools/call" {
		arguments = m.params
	}
	if w.What == "" {
		return fmt.Errorf("%w call: it names no tool", fence.ErrInvalid)
	}
	if len(c.o.Rules) == 0 {
		w.Resource = resourcePrefix + w.Stamp.Key
		return fence.CheckKey(w.Resource)
	}
	i := slices.IndexFunc(c.o.Rules, func(r Rule) bool { return r.Tool == everyTool || r.Tool == w.What })
	if i < 0 {
		return fmt.Errorf("%w call: no rule says which resource the tool %q writes to, so it is refused",
			fence.ErrInvalid, w.What)
	}
	resource, key, err := c.o.Rules[i].target(arguments)
	if err != nil {
		return err
	}
	w.Resource = resource
	if key != "" && key != w.Stamp.Key {
		return &fence.RefusedError{Err: fence.ErrWrongKey, Presented: w.Stamp, Mark: fence.Mark{Key: key}}
	}
	return nil
}

// letIn takes a call through the gate and lets send send it, unless it was
// answered before. When letIn returns, the resource is free for others.
func (c *core) letIn(
	ctx context.Context, w admission.Write, m message, send func(*admission.Passage) (message, error),
) (message, error) {
	a, err := c.gate.Arrive(ctx, w)
	if err != nil {
		return message{}, err
	}
	defer a.Leave()
	defer a.Depart()
	p, err := a.Enter(ctx)
	if c.answers == nil {
		if err != nil {
			return message{}, err
		}
		return send(p)
	}
	// The gate has let the stamp in, so it is still that of the owner. A stamp
	// whose number was used is the owner's, too.
	call := fingerprintOf(w, m)
	if err == nil || errors.Is(err, fence.ErrRepeated) {
		if answer, before := c.answers.answer(call, m); before {
			if err == nil {
				p.NotSent()
			}
			return answer, nil
		}
	}
	if err != nil {
		return message{}, err
	}
	answer, err := send(p)
	if err == nil {
		c.answers.put(call, answer.result())
	}
	return answer, err
}

// observe judges a request that passes whatever the judgement is. The error
// says why it would be refused, if that is known.
func (c *core) observe(ctx context.Context, w admission.Write, err error) {
	if err == nil {
		err = c.gate.Judge(ctx, w)
	}
	c.gate.Observed(w, err)
}

// received returns a message of the upstream. It leaves out members that only
// the proxy may set, and the credential.
func (c *core) received(m message) message {
	m = unclaimed(m)
	if c.o.Credential.Value != "" && m.body != nil {
		m.body, _ = c.o.Credential.hideIn(m.body).(object)
	}
	return m
}

// errBecameTask is why a call is in doubt that the upstream answered with a
// task.
var errBecameTask = errors.New("the upstream has made a task of it, which goes on")

// hints remembers which tools write nothing, as the upstream says.
type hints struct {
	mu       sync.Mutex
	readOnly map[string]bool
}

// mostHints bounds how many tools are remembered.
const mostHints = 1 << 14

func (h *hints) says(tool string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.readOnly[tool]
}

func (h *hints) learn(tool string, readOnly bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if delete(h.readOnly, tool); readOnly && len(h.readOnly) < mostHints {
		h.readOnly[tool] = true
	}
}

func (h *hints) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.readOnly)
}
