package mcp

import (
	"io"
	"sync"
)

// These bound the queue for a client that does not read: its messages, and the
// bytes of all but the last.
const (
	mostKept  = 1024
	mostBytes = 2 * MaxFrame
)

// outbox is the queue of messages to the client, in order. A client that does
// not read for a while keeps no resource from others: an answer of the
// upstream ends its write although the client has not taken it.
type outbox struct {
	mu     sync.Mutex
	change *sync.Cond
	queue  [][]byte // encoded messages
	size   int      // of all messages in the queue
	hasty  bool     // nobody waits for room any more
	closed bool
}

func newOutbox() *outbox {
	b := &outbox{}
	b.change = sync.NewCond(&b.mu)
	return b
}

// put adds a message. It waits if there are very many.
func (b *outbox) put(value any) {
	line := encode(value)
	b.mu.Lock()
	defer b.mu.Unlock()
	for (len(b.queue) >= mostKept || b.size >= mostBytes) && !b.hasty && !b.closed {
		b.change.Wait()
	}
	b.queue = append(b.queue, line)
	b.size += len(line)
	b.change.Broadcast()
}

// hurry lets nobody wait for room any more.
func (b *outbox) hurry() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hasty = true
	b.change.Broadcast()
}

// close lets drain return when it has written everything.
func (b *outbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.change.Broadcast()
}

// drain writes the messages. It returns when the outbox is closed and empty, or
// when the client has gone.
func (b *outbox) drain(to io.Writer) {
	defer b.close() // nobody waits for room when the client has gone
	for {
		b.mu.Lock()
		for len(b.queue) == 0 && !b.closed {
			b.change.Wait()
		}
		if len(b.queue) == 0 {
			b.mu.Unlock()
			return
		}
		line := b.queue[0]
		b.queue[0], b.queue = nil, b.queue[1:]
		b.size -= len(line)
		b.change.Broadcast()
		b.mu.Unlock()
		if _, err := to.Write(append(line, '\n')); err != nil {
			return
		}
	}
}
