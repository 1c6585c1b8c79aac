package wire

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// Problem is a refusal (RFC 9457). Besides its members it has those of an error
// of the croft command under --json.
type Problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	// Detail says why the request was refused, and what to do.
	Detail string `json:"detail"`
	Code   Code   `json:"code"`
	// Fault is set if the outcome is not unknown after all: the request has
	// changed nothing, and asking again does not help.
	Fault bool `json:"fault,omitempty"`

	// Ahead is set if the input is invalid because its token lies too far
	// ahead.
	Ahead bool `json:"ahead,omitempty"`

	// Arrived is how much of an upload the server has, if a part does not
	// follow on it.
	Arrived int64 `json:"arrived,omitempty"`

	// Facts of a key that is held, or not owned.
	Key       string      `json:"key,omitempty"`
	Token     fence.Token `json:"token,omitempty"`
	Owner     string      `json:"owner,omitempty"`
	Instance  string      `json:"instance,omitempty"`
	Why       tenure.Why  `json:"why,omitempty"`
	Until     time.Time   `json:"until,omitzero"`
	Remaining string      `json:"remaining,omitempty"`
	Now       time.Time   `json:"now,omitzero"`
	Grant     fence.Grant `json:"grant,omitempty"`
	// Record is the key's record, nil if the store remembers nothing.
	Record *tenure.Record `json:"record,omitempty"`

	*WorkFacts
}

// Code names the kind of a refusal.
type Code string

// The codes. The first four are those of the command line.
const (
	Held     Code = "held"
	NotOwned Code = "not_owned"
	Unknown  Code = "unknown"
	Invalid  Code = "invalid"

	NotFound        Code = "not_found"       // nothing is there that this identity may see
	NotAllowed      Code = "not_allowed"     // the identity may see the key, and may not do this
	Unauthenticated Code = "unauthenticated" // the server does not know who asks
	Unsupported     Code = "unsupported"     // the store behind the server cannot do this
	Busy            Code = "busy"            // too much at once; nothing was changed
	TooLarge        Code = "too_large"
	Gap             Code = "gap" // a part of an upload does not follow on what has arrived
)

// The codes about items, effects and guarded files, those of the command line.
const (
	Stale     Code = "stale"
	State     Code = "state"
	Conflict  Code = "conflict"
	Collision Code = "collision"
	WrongKey  Code = "wrong_key"
	Repeated  Code = "repeated"
)

// statuses has the HTTP status of each code.
var statuses = map[Code]int{
	Held: http.StatusConflict, NotOwned: http.StatusConflict, Unknown: http.StatusServiceUnavailable,
	Invalid: http.StatusBadRequest, NotFound: http.StatusNotFound, NotAllowed: http.StatusForbidden,
	Unauthenticated: http.StatusUnauthorized, Unsupported: http.StatusNotImplemented,
	Busy: http.StatusServiceUnavailable, TooLarge: http.StatusRequestEntityTooLarge,
	Gap:   http.StatusConflict,
	Stale: http.StatusConflict, State: http.StatusConflict, Conflict: http.StatusConflict,
	Collision: http.StatusConflict, WrongKey: http.StatusConflict, Repeated: http.StatusConflict,
}

// NewProblem makes a refusal. The status follows from the code.
func NewProblem(code Code, format string, args ...any) Problem {
	status := statuses[code]
	return Problem{Title: http.StatusText(status), Status: status, Detail: fmt.Sprintf(format, args...), Code: code}
}

// ProblemOf turns the error of a store into a refusal. It leaves out the text
// of an unknown outcome, which may name addresses and files of the server.
func ProblemOf(err error) Problem {
	var held *tenure.HeldError
	var notOwned *tenure.NotOwnedError
	switch {
	case errors.As(err, &held):
		p := NewProblem(Held, "%s", held.Error())
		p.addRecord(held.Record)
		p.Why, p.Until, p.Now = held.Why, held.Until, held.Now
		p.Remaining = held.Remaining().Round(time.Microsecond).String()
		return p
	case errors.As(err, &notOwned):
		p := NewProblem(NotOwned, "%s", notOwned.Error())
		p.addRecord(notOwned.Record)
		p.Why, p.Now, p.Grant = notOwned.Why, notOwned.Now, notOwned.Grant
		return p
	case errors.Is(err, store.ErrUnknown):
		if store.IsFault(err) {
			p := NewProblem(Unknown, "the server's store cannot be used; "+
				"nothing was changed; the server's log says why")
			p.Fault = true
			return p
		}
	case errors.Is(err, fence.ErrInvalid):
		p := NewProblem(Invalid, "%s", err.Error())
		p.Ahead = errors.Is(err, fence.ErrAhead)
		return p
	case isWorkRefusal(err):
		return workProblem(err)
	case errors.Is(err, errors.ErrUnsupported):
		return NewProblem(Unsupported, "the store behind this server cannot do this")
	}
	return NewProblem(Unknown, "the server's store did not answer; ask again with the same secret")
}

func (p *Problem) addRecord(rec tenure.Record) {
	if rec.IsZero() {
		return
	}
	p.Record, p.Key, p.Token, p.Owner, p.Instance = &rec, rec.Key, rec.Token, rec.Owner, rec.Instance
}

// RefusalOf makes the error of a guarded file that has refused a stamp. It
// returns nil if p is no such refusal.
func (p Problem) RefusalOf(stamp fence.Stamp) error {
	switch {
	case p.WorkFacts == nil || p.Newest == nil:
		return nil
	case p.Code == Stale:
		return &fence.StaleError{Presented: stamp, Newest: *p.Newest}
	case guarded[p.Code] != nil:
		return &fence.RefusedError{Err: guarded[p.Code], Presented: stamp, Mark: *p.Newest}
	}
	return nil
}

// Err makes the error of a store that a refusal stands for. No store refuses a
// stamp, or knows items: see [Problem.RefusalOf] and [Problem.LedgerErr].
func (p Problem) Err() error {
	var rec tenure.Record
	if p.Record != nil {
		rec = *p.Record
	}
	switch p.Code {
	case Held:
		return &tenure.HeldError{Record: rec, Why: p.Why, Until: p.Until, Now: p.Now}
	case NotOwned:
		return &tenure.NotOwnedError{Grant: p.Grant, Record: rec, Why: p.Why, Now: p.Now}
	case Invalid, TooLarge:
		return &refusal{p, fence.ErrInvalid}
	case Unsupported:
		return &refusal{p, errors.ErrUnsupported}
	case NotFound, NotAllowed, Unauthenticated:
		return store.Fault(&refusal{p: p})
	}
	if p.Fault {
		return store.Fault(&refusal{p: p})
	}
	return store.Unknown(&refusal{p: p})
}

// refusal is a refusal as an error.
type refusal struct {
	p     Problem
	match error // nil: none
}

func (e *refusal) Error() string {
	if e.p.Code == Invalid {
		return e.p.Detail
	}
	return fmt.Sprintf("the server refuses (%d %s): %s", e.p.Status, e.p.Code, e.p.Detail)
}

// Is makes a refusal match the error that its code stands for.
func (e *refusal) Is(target error) bool {
	return e.match != nil && target == e.match || e.p.Ahead && target == fence.ErrAhead
}

// Bytes writes the refusal.
func (p Problem) Bytes() []byte { return encode(p) }

// ReadProblem reads a refusal. It skips members that it does not know.
func ReadProblem(data []byte) (p Problem, err error) {
	err = read(data, false, func(r *reader) error { return r.problem(&p) })
	if err == nil && statuses[p.Code] == 0 {
		return p, fmt.Errorf("%w refusal: it has no code that Croft knows", fence.ErrInvalid)
	}
	return p, err
}

func (r *reader) problem(p *Problem) error {
	return r.object(func(name string) (known bool, err error) {
		switch name {
		case "title":
			err = text(r, &p.Title)
		case "status":
			err = whole(r, &p.Status)
		case "detail":
			err = text(r, &p.Detail)
		case "code":
			err = text(r, &p.Code)
		case "fault":
			err = r.truth(&p.Fault)
		case "ahead":
			err = r.truth(&p.Ahead)
		case "arrived":
			err = whole(r, &p.Arrived)
		case "key":
			err = text(r, &p.Key)
		case "token":
			err = whole(r, &p.Token)
		case "owner":
			err = text(r, &p.Owner)
		case "instance":
			err = text(r, &p.Instance)
		case "why":
			err = text(r, &p.Why)
		case "until":
			err = r.moment(&p.Until)
		case "remaining":
			err = text(r, &p.Remaining)
		case "now":
			err = r.moment(&p.Now)
		case "grant":
			err = text(r, &p.Grant)
		case "record":
			p.Record = &tenure.Record{}
			err = r.record(p.Record)
		default:
			return r.workFact(name, p)
		}
		return true, err
	})
}
