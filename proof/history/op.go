package history

import (
	"fmt"
	"math"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// Kind says what sort of operation a client carried out.
type Kind string

// The kinds of operations.
const (
	Lease   Kind = "lease"   // a request to the lease store: Verb
	Raise   Kind = "raise"   // the fence raised at the key's resource
	Write   Kind = "write"   // an update of the key's resource
	Read    Kind = "read"    // the key's resource read: Update is what it held
	Holds   Kind = "holds"   // a client sure at Begin that it holds the key
	Applied Kind = "applied" // the updates that the key's resource says were applied, in order: Updates
	Fault   Kind = "fault"   // something done to the clients, the network or a server: Note
	Rewind  Kind = "rewind"  // the lease store lost what it confirmed lately, some time between Begin and End
)

// Outcome is how an operation ended.
type Outcome string

// The outcomes of operations. An operation without any was cut off, and Unknown is one that does not know: both may or may not have taken effect.
const (
	OK       Outcome = "ok"        // granted, renewed, released; admitted, if a guard was asked
	Held     Outcome = "held"      // refused: another has the key
	NotOwned Outcome = "not_owned" // refused: the grant is over
	Stale    Outcome = "stale"     // refused by a guard: a newer owner has been admitted
	Repeated Outcome = "repeated"  // refused by a guard: this write, or one after it, has been made
	Refused  Outcome = "refused"   // refused by a guard for any other reason
	Invalid  Outcome = "invalid"   // never tried
	Unknown  Outcome = "unknown"
)

// Never is the end of an operation that has none.
const Never = math.MaxInt64

// Call is what was asked for.
type Call struct {
	Kind  Kind        `json:"kind"`
	Key   string      `json:"key,omitempty"`
	Verb  tenure.Verb `json:"verb,omitempty"`
	Grant fence.Grant `json:"grant,omitempty"`
	Token fence.Token `json:"token,omitempty"`
	Seq   uint64      `json:"seq,omitempty"`
	// Owner is who asks for the key, or whom an operator reserves it for.
	Owner string `json:"owner,omitempty"`
	// Resume says of a renewal that it is allowed after the deadline.
	Resume bool `json:"resume,omitempty"`
	// Update names a write, and Prior the one it was made from: that which the writer had read, or "" if there was none.
	Update string `json:"update,omitempty"`
	Prior  string `json:"prior,omitempty"`
	// Victim is the process that a fault befell, "" if all.
	Victim string `json:"victim,omitempty"`
	Note   string `json:"note,omitempty"`
}

// Result is what came of it. What a lease store answers, it answers with the key's record: Token to Now are from that.
type Result struct {
	Outcome  Outcome      `json:"outcome"`
	Token    fence.Token  `json:"record_token,omitempty"`
	Grant    fence.Grant  `json:"record_grant,omitempty"`
	State    tenure.State `json:"state,omitempty"`
	Owner    string       `json:"record_owner,omitempty"`
	Acquired int64        `json:"acquired,omitempty"` // in microseconds on the store's clock, like the next two
	Deadline int64        `json:"deadline,omitempty"`
	Now      int64        `json:"now,omitempty"`
	Update   string       `json:"holds,omitempty"` // that the resource held when it was read
	Updates  []string     `json:"updates,omitempty"`
	Error    string       `json:"error,omitempty"`
}

// Op is one operation as its process saw it.
type Op struct {
	Process string
	Number  int64 // counts the operations of the process
	Call
	Result
	// Begin and End are on the machine's boot clock, in nanoseconds. End is Never if no outcome was seen.
	Begin, End int64
}

// The two parts have fields of the same names; these tell them apart.

// Asked is the stamp or grant that was presented.
func (o Op) Asked() (fence.Token, fence.Grant) { return o.Call.Token, o.Call.Grant }

// Shown is the record that the answer showed.
func (o Op) Shown() (fence.Token, fence.Grant) { return o.Result.Token, o.Result.Grant }

// Open reports whether the operation may have taken effect although nobody was told, or not.
func (o Op) Open() bool { return o.Outcome == "" || o.Outcome == Unknown }

// String tells the operation in a line.
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
