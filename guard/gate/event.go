// Package gate has the events of gates.
//
// A gate is a guard around calls instead of data. It stands in front of a
// service and lets in the writes whose stamps still count. It keeps a resource
// closed while the outcome of a write is not known. Package boundary/httpfence
// has the gates for HTTP, and boundary/mcp those for MCP. Code that counts or
// logs events needs only this package.
package gate

import (
	"time"

	"github.com/croft-dev/croft/fence"
)

// Kind names an event at a gate. Log records use the same names, so they never
// change.
type Kind string

// The kinds of events.
const (
	// Admitted: the gate let a write in. Method, Key, Token.
	Admitted Kind = "write_admitted"
	// Refused: the gate refused a write, or could not send it on (Status 502).
	// Method, Code, Status, Err; Key and Token if the write is stamped.
	Refused Kind = "write_refused"
	// Observed: the gate let a write in that it would have refused, because it
	// refuses nothing. Method, Code, Status, Err; Key and Token if the write is
	// stamped. Code and Status are those of the refusal.
	Observed Kind = "write_observed"
	// InDoubt: the gate sent a write on, and its outcome is not known. Method,
	// Key, Token, Err.
	InDoubt Kind = "write_in_doubt"
	// Answered: the service answered a write. Method, Key, Token, Status, Took.
	Answered Kind = "write_answered"
	// Closed: the gate lets nothing in for a while. For, Err.
	Closed Kind = "resource_closed"
	// Opened: the gate lets writes in again.
	Opened Kind = "resource_opened"
	// Taken: from now on this is the only gate of the resource. Token (of its
	// own lease).
	Taken Kind = "resource_taken"
	// Left: this is no longer the only gate of the resource.
	Left Kind = "resource_left"
	// Unsure: the store did not say who the current owner is. If Status is 0,
	// the mark alone decides. Otherwise the write is refused, and an event
	// Refused follows. Method, Key, Token, Status, Err.
	Unsure Kind = "write_unsure"
	// ReadFailed: a read got no answer from the service. Method, Code, Status,
	// Err.
	ReadFailed Kind = "read_failed"
)

// Event is one event at a gate. Fields that do not concern its kind are zero.
type Event struct {
	Kind     Kind
	Resource string
	Method   string // of HTTP, or the name of a tool
	Key      string
	Token    fence.Token
	Status   int // an HTTP status
	Code     string
	Took     time.Duration
	For      time.Duration // croft.Forever: until an operator opens the resource
	Err      error
}
