package history

import (
	"fmt"
	"math"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// Kind is the sort of an operation.
type Kind string

// The kinds of operations.
const (
	Lease   Kind = "lease"   // a request to the lease store: Verb
	Raise   Kind = "raise"   // the fence raised at the key's resource
	Write   Kind = "write"   // an update of the key's resource
	Read    Kind = "read"    // the key's resource read; Result.Update is its content
	Holds   Kind = "holds"   // the client is sure at Begin that it holds the key
	Applied Kind = "applied" // the resource's list of applied updates, in order: Updates
	Fault   Kind = "fault"   // a fault in the clients, the network or a server: Note
	Rewind  Kind = "rewind"  // between Begin and End, the store lost recent changes it had confirmed
)

// Outcome is how an operation ended.
type Outcome string

// The outcomes of operations. An operation that was cut off has no outcome. If
// the outcome is missing or Unknown, the operation may have taken effect.
const (
	OK       Outcome = "ok"        // granted, renewed or released; admitted by a guard
	Held     Outcome = "held"      // refused: another owner has the key
	NotOwned Outcome = "not_owned" // refused: the grant is over
	Stale    Outcome = "stale"     // refused by a guard: it has admitted a newer owner
	Repeated Outcome = "repeated"  // refused by a guard: it has admitted this write, or a later one
	Refused  Outcome = "refused"   // refused by a guard for another reason
	Invalid  Outcome = "invalid"   // never tried
	Unknown  Outcome = "unknown"
)

// Never is the End of an operation that has not ended.
const Never = math.MaxInt64

// Call is the request of an operation.
type Call struct {
	Kind  Kind        `json:"kind"`
	Key   string      `json:"key,omitempty"`
	Verb  tenure.Verb `json:"verb,omitempty"`
	Grant fence.Grant `json:"grant,omitempty"`
	Token fence.Token `json:"token,omitempty"`
	Seq   uint64      `json:"seq,omitempty"`
	// Owner is the owner that asks for the key, or that an operator reserves it
	// for.
	Owner string `json:"owner,omitempty"`
	// Resume says that a renewal is allowed after the deadline.
	Resume bool `json:"resume,omitempty"`
	// Update names a write. Prior names the update that the writer had read
	// before, or "" if there was none.
	Update string `json:"update,omitempty"`
	Prior  string `json:"prior,omitempty"`
	// Victim is the process that a fault hit, "" if it hit all.
	Victim string `json:"victim,omitempty"`
	Note   string `json:"note,omitempty"`
}

// Result is the answer to a Call. A lease store answers with the key's record:
// the fields from Token to Now come from it.
type Result struct {
	Outcome  Outcome      `json:"outcome"`
	Token    fence.Token  `json:"record_token,omitempty"`
	Grant    fence.Grant  `json:"record_grant,omitempty"`
	State    tenure.State `json:"state,omitempty"`
	Owner    string       `json:"record_owner,omitempty"`
	Acquired int64        `json:"acquired,omitempty"` // microseconds on the store's clock, like the next two
	Deadline int64        `json:"deadline,omitempty"`
	Now      int64        `json:"now,omitempty"`
	Update   string       `json:"holds,omitempty"` // the resource's content when it was read
	Updates  []string     `json:"updates,omitempty"`
	Error    string       `json:"error,omitempty"`
}

// Op is one operation as its process saw it.
type Op struct {
	Process string
	Number  int64 // counts the operations of the process
	Call
	Result
	// Begin and End are nanoseconds of the machine's boot clock. End is Never
	// if the operation has no outcome.
	Begin, End int64
}

// Call and Result have fields of the same names; these methods tell them apart.

// Asked returns the token and grant that the client presented.
func (o Op) Asked() (fence.Token, fence.Grant) { return o.Call.Token, o.Call.Grant }

// Shown returns the token and grant of the record in the answer.
func (o Op) Shown() (fence.Token, fence.Grant) { return o.Result.Token, o.Result.Grant }

// Open reports whether the outcome is unknown.
func (o Op) Open() bool { return o.Outcome == "" || o.Outcome == Unknown }

// String describes the operation in one line.
func (o Op) String() string {
	what := string(o.Kind)
	if o.Kind == Lease {
		what = string(o.Verb)
	}
	s := fmt.Sprintf("%s #%d %s", o.Process, o.Number, what)
	if o.Key != "" {
		s += " of " + o.Key
	}
	token, grant := o.Asked()
	if token != 0 {
		s += fmt.Sprintf(" with token %d", token)
	}
	if o.Seq != 0 {
		s += fmt.Sprintf(" seq %d", o.Seq)
	}
	if grant != "" && token == 0 {
		s += " by grant " + short(grant)
	}
	if o.Verb == tenure.Reserve {
		s += " for " + o.Call.Owner
	}
	if o.Call.Update != "" {
		s += fmt.Sprintf(" of update %s made from %q", o.Call.Update, o.Prior)
	}
	if o.Note != "" {
		s += " " + o.Note
	}
	if o.Kind == Holds || o.Kind == Fault {
		return s
	}
	return s + ": " + o.result()
}

func (o Op) result() string {
	if o.Outcome == "" {
		return "no outcome"
	}
	s := string(o.Outcome)
	token, grant := o.Shown()
	if token != 0 {
		s += fmt.Sprintf(", record %s by %s at token %d", o.State, short(grant), token)
	}
	if o.Deadline != 0 {
		s += fmt.Sprintf(", %s left", time.Duration(o.Deadline-o.Now)*time.Microsecond)
	}
	if o.Result.Update != "" {
		s += ", read " + o.Result.Update
	}
	if o.Error != "" {
		s += ", " + o.Error
	}
	return s
}

func short(g fence.Grant) string { return string(g[:min(6, len(g))]) }
