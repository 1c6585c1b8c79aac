package overhttp

import (
	"net/http"
	"time"
)

// Stall is how long a client may take to accept a piece of an answer. A slower
// client loses its answer, so that others need not wait for the resource.
const Stall = 10 * time.Second

// Writer passes an answer on to a client, each piece with a deadline.
type Writer struct {
	http.ResponseWriter
	Control *http.ResponseController
	Stall   time.Duration
}

// Write writes a piece.
func (p *Writer) Write(b []byte) (int, error) {
	defer p.within()()
	return p.ResponseWriter.Write(b)
}

// FlushError flushes the written pieces.
func (p *Writer) FlushError() error {
	defer p.within()()
	return p.Control.Flush()
}

// within sets the deadline and returns a function that removes it. Between
// pieces there is none: the service may take its time.
func (p *Writer) within() func() {
	// Not every server can set a deadline; then its own limits count.
	_ = p.Control.SetWriteDeadline(time.Now().Add(p.Stall))
	return func() { _ = p.Control.SetWriteDeadline(time.Time{}) }
}

// Unwrap returns the wrapped writer, for http.ResponseController.
func (p *Writer) Unwrap() http.ResponseWriter { return p.ResponseWriter }
