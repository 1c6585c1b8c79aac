package mcp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/croft-dev/croft/internal/admission"
)

// These bound the end of a session.
const (
	// lastAnswers is how long writes inside may take when the session is asked
	// to end. It is also how long an upstream that does not read may keep back
	// the last messages of a client that has left.
	lastAnswers = 5 * time.Second
	// leaves is how long the upstream may take to end by itself.
	leaves = 2 * time.Second
	// dies is how long it may take to be killed.
	dies = 10 * time.Second
)

// mostCalls bounds the requests of a client that have no answer yet.
const mostCalls = 4096

// session is one client and one upstream.
type session struct {
	o    Options
	gate *admission.Gate
	up   Upstream
	// toUpstream writes messages. Those for the client go through outbox, so
	// that nobody waits for a client that does not read.
	toUpstream sender
	outbox     *outbox

	writes   sync.WaitGroup
	down     chan struct{} // closed when the upstream is gone
	fall     func()        // closes down
	kill     sync.Once
	survived error // why the upstream could not be killed

	mu       sync.Mutex
	ending   bool             // no request is taken any more
	doubt    error            // why the session has killed the upstream
	calls    map[string]*call // unanswered requests of the client, by id
	writeIDs map[string]*call // unanswered writes, by the id that the upstream sees
	newest   map[string]*call // the newest write to each resource
	inside   map[*admission.Passage]bool
	readOnly map[string]bool // tools of which the upstream says so
}

// call is a request of the client that is not answered.
type call struct {
	message
	// writeID is the id of a write that the upstream sees. It is random, so
	// that no answer to an earlier request of the client is taken for its own.
	writeID string
	// answer gets the upstream's answer to a write. It is nil for a read.
	answer chan message
	// write is the write, and invalid says why it names no resource.
	write   admission.Write
	invalid error
	// Writes to one resource go to the gate in the order in which they came.
	// after is closed when this one's turn has come, and done when it passes
	// the turn on.
	after <-chan struct{}
	done  chan struct{}
	// leave ends the wait of a write that is not sent yet.
	leave context.CancelFunc
	sent  bool          // the write may have reached the upstream
	back  bool          // the write must not be sent any more
	left  chan struct{} // closed when the client has cancelled the write
	gone  bool          // left is closed
}

// Serve passes messages between a client and an upstream until the client has
// left, the upstream is gone, or ctx ends. Nothing of the upstream is alive
// when it returns nil. The reader of a client that has not left may still be in
// use then.
//
// If ctx ends, Serve waits a few seconds for the writes that are inside, and
// returns nil. If the upstream is gone first, the error says why.
func Serve(ctx context.Context, in io.Reader, out io.Writer, up Upstream, o Options) error {
	if err := o.usual(); err != nil {
		return err
	}
	gate, err := o.gate()
	if err != nil {
		return err
	}
	s := &session{
		o: o, gate: gate, up: up, toUpstream: sender{w: up.In}, outbox: newOutbox(),
		down: make(chan struct{}), calls: map[string]*call{},
		writeIDs: map[string]*call{}, newest: map[string]*call{}, inside: map[*admission.Passage]bool{},
		readOnly: map[string]bool{},
	}
	s.fall = sync.OnceFunc(func() { close(s.down) })
	left := make(chan struct{})
	go func() { defer close(left); s.readClient(newLines(in)) }()
	go func() { defer s.fall(); s.readUpstream(newLines(up.Out)) }()
	go s.keepLimit()
	written := make(chan struct{})
	go func() { defer close(written); s.outbox.drain(out) }()
	select {
	case <-left:
	case <-ctx.Done():
	case <-s.down:
		err = errors.New("the upstream has ended")
	}
	err = s.finish(ctx, err)
	s.outbox.close()
	select {
	case <-written:
	case <-time.After(leaves): // the client does not read
	}
	return err
}

// finish ends the session. It waits for the writes that are inside, because a
// sent write cannot be taken back.
func (s *session) finish(ctx context.Context, why error) error {
	s.mu.Lock()
	s.ending = true
	s.mu.Unlock()
	closed, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.o.AnswerWithin+lastAnswers)
	defer cancel()
	answered := make(chan struct{})
	ended := make(chan error, 1)
	go func() { ended <- s.gate.Close(closed) }() // refuses those that wait
	go func() { s.writes.Wait(); close(answered) }()
	select {
	case <-answered:
	case <-ctx.Done():
		select {
		case <-answered:
		case <-time.After(lastAnswers):
		}
	}
	_ = s.up.In.Close() // it asks the upstream to end
	select {
	case <-s.down:
	case <-time.After(leaves):
	}
	s.killUpstream()
	<-answered // no write waits for an upstream that is gone
	s.failCalls()
	if s.doubt != nil {
		why = s.doubt
	}
	return errors.Join(why, s.survived, <-ended)
}

// killUpstream kills the upstream with all its descendants, once.
func (s *session) killUpstream() {
	s.kill.Do(func() {
		defer s.fall()
		ctx, cancel := context.WithTimeout(context.Background(), dies)
		defer cancel()
		if err := s.up.Kill(ctx); err != nil {
			s.survived = fmt.Errorf("the upstream could not be killed: %w", err)
		}
	})
}

// failCalls answers the reads to which no answer will come.
func (s *session) failCalls() {
	s.mu.Lock()
	calls := s.calls
	s.calls = map[string]*call{}
	s.mu.Unlock()
	for _, c := range calls {
		s.outbox.put(rpcError(c.message, internalError, "the server behind the proxy has ended"))
	}
}

// mostAhead is how many messages of the client are read before those in front
// of them have been passed on.
const mostAhead = 16

// readClient reads the messages of the client until it leaves. It reads ahead,
// so that it also sees the client leave when the upstream does not read.
func (s *session) readClient(l *lines) {
	type frame struct {
		line []byte
		err  error
	}
	ahead, handled := make(chan frame, mostAhead), make(chan struct{})
	go func() {
		defer close(handled)
		for f := range ahead {
			s.handle(f.line, f.err)
		}
	}()
	for {
		line, err := l.next()
		if err != nil && !errors.Is(err, errTooLong) {
			break
		}
		ahead <- frame{line, err}
	}
	close(ahead)
	select {
	case <-handled:
	case <-time.After(lastAnswers):
	}
}

// handle passes a line of the client on, or refuses it. The error says why the
// line could not be read.
func (s *session) handle(line []byte, err error) {
	var m message
	if err == nil {
		m, err = decode(line)
	}
	if err == nil {
		s.fromClient(m)
		return
	}
	if !s.mayAnswer(m) {
		m = message{}
	}
	s.outbox.put(rpcError(m, invalidRequest, "the message is refused, and nothing was sent on: "+err.Error()))
}

// mayAnswer reports whether a message that is refused is a request whose id is
// known, and is not that of another request. A client waits for its answer.
func (s *session) mayAnswer(m message) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return m.isRequest() && s.calls[m.id] == nil
}

// readUpstream reads the messages of the upstream until it is gone.
func (s *session) readUpstream(l *lines) {
	for {
		line, err := l.next()
		if err != nil && !errors.Is(err, errTooLong) {
			return
		}
		var m message
		if err == nil {
			m, err = decode(line)
		}
		if errors.Is(err, errHalfPair) { // servers cut texts in the middle of an emoji
			err = nil
		}
		if err != nil {
			s.o.Dropped(fmt.Errorf("a message of the upstream is refused: %w", err))
			continue
		}
		s.fromUpstream(m)
	}
}

// fromClient passes a message of the client on, or refuses it.
func (s *session) fromClient(m message) {
	m = s.cleaned(m)
	switch {
	case m.isRequest():
		s.request(m)
	case m.method == "notifications/cancelled":
		if m, ok := s.cancelled(m); ok {
			_ = s.toUpstream.send(m.body, nil)
		}
	case m.method != "" && !strings.HasPrefix(m.method, "notifications/"):
		s.outbox.put(rpcError(message{}, invalidRequest,
			"a call without an id is refused, because a server may carry it out; nothing was sent on"))
	default:
		_ = s.toUpstream.send(m.body, nil) // an upstream that is gone closes down
	}
}

// request passes a request on, or refuses it.
func (s *session) request(m message) {
	c := &call{message: m.head()}
	w, kind := s.classify(m)
	switch kind {
	case unknownMethod:
		s.outbox.put(rpcError(m, methodNotFound,
			"the proxy does not know this method, so it may write; nothing was sent on"))
		return
	case noTasks:
		s.outbox.put(rpcError(m, methodNotFound, "tasks are not offered here; nothing was sent on"))
		return
	case write:
		c.message = m
		c.answer, c.left, c.writeID = make(chan message, 1), make(chan struct{}), "croft-"+rand.Text()
		c.done = make(chan struct{})
		c.invalid = s.target(m, &w)
		c.write = w
	}
	ctx, leave := context.WithCancel(context.Background())
	c.leave = leave
	if why := s.register(c); why != "" {
		leave()
		s.outbox.put(rpcError(m, invalidRequest, why))
		return
	}
	if kind == read {
		leave()
		_ = s.toUpstream.send(m.body, nil)
		return
	}
	go func() {
		defer s.writes.Done()
		defer leave()
		s.write(ctx, c)
	}()
}

// register enters a request into the table. It returns why it may not.
func (s *session) register(c *call) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ending:
		return "the proxy is stopping; nothing was sent on"
	case s.calls[c.id] != nil:
		return "a request with this id is not answered yet; nothing was sent on"
	case len(s.calls) == mostCalls:
		return fmt.Sprintf("%d requests are not answered yet; nothing was sent on", mostCalls)
	}
	s.calls[c.id] = c
	if c.answer != nil {
		s.writes.Add(1)
		s.writeIDs[string(encode(c.writeID))] = c
		if last := s.newest[c.write.Resource]; last != nil {
			c.after = last.done
		}
		s.newest[c.write.Resource] = c
	}
	return ""
}

// passTurn lets the next write to the same resource go to the gate, after all
// that came before this one.
func (s *session) passTurn(c *call) {
	if c.after != nil {
		<-c.after
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.newest[c.write.Resource] == c {
		delete(s.newest, c.write.Resource)
	}
	close(c.done)
}

// asked returns the request to which the upstream answers under that id, or
// nil. No second answer belongs to it. A write is in the table of calls until
// its resource is free.
func (s *session) asked(id string) *call {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.writeIDs[id]; c != nil && c.sent {
		delete(s.writeIDs, id)
		return c
	}
	c := s.calls[id]
	if c == nil || c.answer != nil { // the upstream knows a write by another id
		return nil
	}
	delete(s.calls, id)
	return c
}

// cancelled notes that the client does not want an answer any more. It returns
// what the upstream is to hear, if anything: it has not seen a write that
// waits.
func (s *session) cancelled(m message) (message, bool) {
	value, _ := m.params.get("requestId")
	id, err := idText(value)
	if err != nil {
		return m, true // it cancels nothing
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.calls[id]
	switch {
	case c == nil:
		return m, true
	case c.answer == nil:
		delete(s.calls, id)
		return m, true
	case c.gone:
		return m, false
	}
	c.gone = true
	close(c.left)
	c.leave()
	return m.withParams(m.params.with("requestId", c.writeID)), c.sent
}

// fromUpstream passes a message of the upstream on. An answer to nothing is
// dropped.
func (s *session) fromUpstream(m message) {
	m = unclaimed(m)
	if m.method != "" {
		if m.method == "notifications/tools/list_changed" {
			s.mu.Lock()
			clear(s.readOnly)
			s.mu.Unlock()
		}
		s.outbox.put(m.body)
		return
	}
	c := s.asked(m.id)
	switch {
	case c == nil:
	case c.answer != nil:
		id, _ := c.body.get("id")
		m.id, m.body = c.id, m.body.with("id", id)
		c.answer <- m
	default:
		s.outbox.put(s.shown(c.method, m).body)
	}
}
