package admission

import (
	"errors"
	"net/http"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/guard/gate"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// Refusal is an error that knows its answer. The client is told Say. The error
// behind it is for the operator: it may name addresses, owners and files that
// are none of the client's business.
type Refusal struct {
	Status   int // of an HTTP answer
	Code     string
	Resource string
	Stamp    fence.Stamp   // of the write, if it has one
	Retry    time.Duration // when to try again; 0 means that nobody knows
	Sent     bool
	Say      string // if it is "", see Detail
	Err      error  // if it is nil, Say is all there is to know
}

func (r *Refusal) Error() string {
	switch {
	case r.Err == nil:
		return r.Say
	case r.Say == "":
		return r.Err.Error()
	}
	return r.Say + ": " + r.Err.Error()
}

func (r *Refusal) Unwrap() error { return r.Err }

// Detail returns what the client is told. If nobody has worded the error for
// clients, they are told what the law says of their own stamp, or which mistake
// their own request has. Otherwise they are told only what the code means.
func (r *Refusal) Detail() string {
	if r.Say != "" {
		return r.Say
	}
	var stale *fence.StaleError
	var refused *fence.RefusedError
	var notOwned *tenure.NotOwnedError
	switch {
	case errors.As(r.Err, &notOwned) && notOwned.Record.Issued(r.Stamp):
		return notOwned.Error()
	case errors.As(r.Err, &stale):
		anonymous := *stale
		anonymous.PresentedOwner, anonymous.NewestOwner = "", ""
		return anonymous.Error()
	case errors.As(r.Err, &refused):
		return refused.Error()
	case r.Code == "invalid":
		return r.Err.Error()
	}
	return Meanings[r.Code]
}

// Meanings has the details for errors that are not for clients.
var Meanings = map[string]string{
	"held":      "another owner has the lease that this write needs; try again later",
	"not_owned": "the lease that this write needs is no longer its owner's; stop this work",
	"unknown":   "the write could not be decided; look whether it took effect before you send it again",
}

// verdicts is the one table from errors to answers. The first match counts. The
// codes are those of the command line.
var verdicts = []struct {
	match  error
	code   string
	status int
}{
	{croft.ErrLost, "not_owned", http.StatusConflict},
	{tenure.ErrHeld, "held", http.StatusConflict},
	{tenure.ErrNotOwned, "not_owned", http.StatusConflict},
	{fence.ErrStale, "stale", http.StatusConflict},
	{fence.ErrCollision, "collision", http.StatusConflict},
	{fence.ErrWrongKey, "wrong_key", http.StatusConflict},
	{fence.ErrRepeated, "repeated", http.StatusConflict},
	{guard.ErrBusy, "unknown", http.StatusServiceUnavailable},
	{store.ErrUnknown, "unknown", http.StatusServiceUnavailable},
	{ErrNoStamp, "invalid", http.StatusPreconditionRequired},
	{fence.ErrInvalid, "invalid", http.StatusBadRequest},
}

// RefusalOf turns any error into a refusal.
func RefusalOf(err error) *Refusal {
	var r *Refusal
	if errors.As(err, &r) {
		return r
	}
	for _, v := range verdicts {
		if errors.Is(err, v.match) {
			return &Refusal{Status: v.status, Code: v.code, Err: err}
		}
	}
	return &Refusal{Status: http.StatusServiceUnavailable, Code: "unknown", Err: err}
}

// Facts are what a client is told of a refusal beside its code and detail.
type Facts struct {
	// Key, Token and Seq belong to the refused stamp.
	Key   string
	Token fence.Token
	Seq   uint64
	// Newest is the token that is newer than a stale stamp. Mark is the mark
	// with which any other refused stamp does not agree, without its grant.
	Newest fence.Token
	Mark   *fence.Mark
	// Owner is the owner of the key's newest grant, if that is another. It is
	// told only to a stamp that the key had shortly before.
	Owner string
}

// Facts returns what a client is told of the refusal.
func (r *Refusal) Facts() Facts {
	var f Facts
	var stale *fence.StaleError
	var refused *fence.RefusedError
	var notOwned *tenure.NotOwnedError
	presented := func(s fence.Stamp) { f.Key, f.Token, f.Seq = s.Key, s.Token, s.Seq }
	switch {
	case r.Code == "not_owned" && errors.As(r.Err, &notOwned):
		presented(r.Stamp)
		if rec := notOwned.Record; rec.Issued(r.Stamp) && rec.Token > r.Stamp.Token {
			f.Newest, f.Owner = rec.Token, rec.Owner
		}
	case errors.As(r.Err, &stale):
		presented(stale.Presented)
		f.Newest = stale.Newest.Token
	case errors.As(r.Err, &refused):
		presented(refused.Presented)
		mark := refused.Mark
		mark.Grant = ""
		f.Mark = &mark
	}
	return f
}

// ErrNoStamp is matched by the refusal of a write without a stamp.
var ErrNoStamp = errors.New("the write carries no stamp")

// Refused tells of a write that is not let in, and notes it in the store. It
// returns what the client is to be told.
func (g *Gate) Refused(w Write, err error) *Refusal {
	known := *RefusalOf(err)
	known.Resource, known.Stamp = w.Resource, w.Stamp
	g.Emit(gate.Event{
		Kind: gate.Refused, Resource: w.Resource, Method: w.What, Key: w.Stamp.Key, Token: w.Stamp.Token,
		Status: known.Status, Code: known.Code, Err: err,
	})
	if g.Options.Notes != nil && w.Stamped && (guard.Refused(err) || known.Code == "not_owned") {
		g.Options.Notes.Refused(w.Stamp, g.Options.NotedAs+w.Resource, err)
	}
	return &known
}
