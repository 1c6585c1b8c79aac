package holdcmd

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// output sends messages to the parent. say never waits.
type output struct {
	queue  chan []byte
	failed chan error    // gets the one reason why the output is of no use
	done   chan struct{} // closed when the writer has ended
}

const (
	// maxQueue is how many messages may wait for a parent that does not read.
	maxQueue = 8192
	// flushTime is how long the last messages may take.
	flushTime = time.Second
)

// errUnread is matched by every reason why the output is of no use.
var errUnread = errors.New("the parent does not read")

func newOutput(w io.Writer) *output {
	o := &output{queue: make(chan []byte, maxQueue), failed: make(chan error, 1), done: make(chan struct{})}
	go o.write(w)
	return o
}

// write writes the messages until the queue is closed.
func (o *output) write(w io.Writer) {
	defer close(o.done)
	for text := range o.queue {
		if _, err := w.Write(text); err != nil {
			o.fail(err)
			return
		}
	}
}

func (o *output) fail(err error) {
	select {
	case o.failed <- fmt.Errorf("%w: %w", errUnread, err):
	default: // there is a reason already
	}
}

// say puts a message into the queue. No caller may use it after close.
func (o *output) say(event any) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(event); err != nil {
		o.fail(err)
		return
	}
	select {
	case o.queue <- text.Bytes():
	default:
		o.fail(errors.New("too many messages wait for it"))
	}
}

// close gives the last messages a moment to be written.
func (o *output) close() {
	close(o.queue)
	timer := time.NewTimer(flushTime)
	defer timer.Stop()
	select {
	case <-o.done:
	case <-timer.C:
	}
}
