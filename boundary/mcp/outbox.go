package mcp

import "sync"

// mostKept is how many messages are kept for a client that does not read.
const mostKept = 1024

// outbox keeps what is to be written to the client, in order. A client that
// does not read for a while keeps no resource from others: an answer of the
// upstream ends its write although the client has not taken it.
type outbox struct {
	mu     sync.Mutex
	change *sync.Cond
	queue  []any
	closed bool
}

func newOutbox() *outbox {
	b := &outbox{}
	b.change = sync.NewCond(&b.mu)
	return b
}

// put adds a message. It waits if there are very many.
func (b *outbox) put(value any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.queue) >= mostKept && !b.closed {
		b.change.Wait()
	}
	b.queue = append(b.queue, value)
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
func (b *outbox) drain(to *sender) {
	defer b.close() // nobody waits for room when the client has gone
	for {
		b.mu.Lock()
		for len(b.queue) == 0 && !b.closed {
			b.change.Wait()
		}
		queue := b.queue
		b.queue = nil
		b.change.Broadcast()
		b.mu.Unlock()
		if len(queue) == 0 {
			return
		}
		for _, value := range queue {
			if to.send(value, nil) != nil {
				return
			}
		}
	}
}
