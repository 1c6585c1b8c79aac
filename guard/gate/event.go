// Package gate is what gates tell of themselves. A gate is a guard around calls instead of data: it stands in front of a service, lets in the writes whose stamps still count, and
// keeps a resource closed while the outcome of one is not known. Package boundary/http has the gates of HTTP; whoever counts or logs what happens at them needs only this one.
package gate

import (
	"time"

	"github.com/croft-dev/croft/fence"
)

// Kind names what happened at a gate. The names are also those of the log records, and stay as they are.
type Kind string

// The kinds of events.
const (
	Admitted Kind = "write_admitted"  // a write was let in: Method, Key, Token
	Refused  Kind = "write_refused"   // a write was not, or was and could not be sent (Status 502): Method, Code, Status, Err; Key and Token if it is stamped
	InDoubt  Kind = "write_in_doubt"  // a write was sent and its outcome is not known: Method, Key, Token, Err
	Answered Kind = "write_answered"  // a write was answered by the service: Method, Key, Token, Status, Took
	Closed   Kind = "resource_closed" // nothing is let in for a while: For, Err
	Opened   Kind = "resource_opened" // and now it is again
	Taken    Kind = "resource_taken"  // this gate is the only one of the resource from now on: Token of its own lease
	Left     Kind = "resource_left"   // and now it is not any more

	// Unsure: the store did not say who the current owner is, so the mark alone
	// decides. Method, Key, Token, Err.
	Unsure Kind = "write_unsure"

	ReadFailed Kind = "read_failed" // a read got no answer from the service: Method, Code, Status, Err
)

// Event is one thing that happened at a gate. Fields that do not concern its kind are zero.
type Event struct {
	Kind     Kind
	Resource string
	Method   string
	Key      string
	Token    fence.Token
	Status   int // as HTTP numbers them
	Code     string
	Took     time.Duration
	For      time.Duration // croft.Forever: until an operator opens it
	Err      error
}
