package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/croft-dev/croft/fence"
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
	*core
	up      Upstream
	noStamp error // why writes are refused
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
	core, err := newCore(o, 10*time.Minute)
	if err != nil {
		return err
	}
	s := &session{
		core: core, up: up, toUpstream: sender{w: up.In}, outbox: newOutbox(),
		down: make(chan struct{}), calls: map[string]*call{},
		writeIDs: map[string]*call{}, newest: map[string]*call{}, inside: map[*admission.Passage]bool{},
	}
	if o.Stamp == (fence.Stamp{}) {
		s.noStamp = fmt.Errorf("%w: nothing says which task these calls belong to; start the agent under croft run, "+
			"and pass CROFT_LEASE on to the server's process", admission.ErrNoStamp)
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
