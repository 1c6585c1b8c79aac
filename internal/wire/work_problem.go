package wire

import (
	"errors"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/work"
)

// WorkFacts are the facts of a refusal about items, effects and guarded files.
type WorkFacts struct {
	What     string `json:"what,omitempty"` // what is not there, or cannot be done
	Of       string `json:"of,omitempty"`   // the item or effect
	State    string `json:"state,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Queue    string `json:"queue,omitempty"`
	Unique   string `json:"unique,omitempty"`
	ID       string `json:"id,omitempty"`
	NewOwner string `json:"newest_owner,omitempty"`
	OldOwner string `json:"presented_owner,omitempty"`
	// Presented is the stamp that was refused, and Newest the mark that
	// refuses it.
	Presented *fence.Mark `json:"presented,omitempty"`
	Newest    *fence.Mark `json:"newest,omitempty"`
}

// guarded has the refusals of a mark by their codes.
var guarded = map[Code]error{
	Collision: fence.ErrCollision, WrongKey: fence.ErrWrongKey, Repeated: fence.ErrRepeated,
}

// isWorkRefusal reports whether a ledger refuses with this error.
func isWorkRefusal(err error) bool {
	var refused *fence.RefusedError
	return errors.Is(err, fence.ErrStale) || errors.Is(err, work.ErrNotFound) || errors.Is(err, work.ErrState) ||
		errors.Is(err, work.ErrConflict) || errors.As(err, &refused)
}

// workProblem makes a refusal of the error of a ledger.
func workProblem(err error) Problem {
	var stale *fence.StaleError
	var refused *fence.RefusedError
	var state *work.StateError
	var conflict *work.ConflictError
	var missing *work.NotFoundError
	var p Problem
	switch {
	case errors.As(err, &stale):
		p = NewProblem(Stale, "%s", stale.Error())
		p.WorkFacts = &WorkFacts{OldOwner: stale.PresentedOwner, NewOwner: stale.NewestOwner}
		p.marks(stale.Presented, stale.Newest)
	case errors.As(err, &refused):
		p = NewProblem(Collision, "%s", refused.Error())
		for code, match := range guarded {
			if errors.Is(refused.Err, match) {
				p = NewProblem(code, "%s", refused.Error())
			}
		}
		p.WorkFacts = &WorkFacts{}
		p.marks(refused.Presented, refused.Mark)
	case errors.As(err, &state):
		p = NewProblem(State, "%s", state.Error())
		p.WorkFacts = &WorkFacts{What: state.What, Of: state.Of, State: state.State, Reason: state.Why}
	case errors.As(err, &conflict):
		p = NewProblem(Conflict, "%s", conflict.Error())
		p.WorkFacts = &WorkFacts{Queue: conflict.Queue, Unique: conflict.Unique, ID: string(conflict.ID)}
	case errors.As(err, &missing):
		p = NewProblem(NotFound, "%s", missing.Error())
		p.WorkFacts = &WorkFacts{What: missing.What}
	default: // a sentinel alone, which no ledger returns
		p = NewProblem(State, "%s", err.Error())
		p.WorkFacts = &WorkFacts{Reason: err.Error()}
	}
	return p
}

func (p *Problem) marks(presented fence.Stamp, newest fence.Mark) {
	m := presented.Mark()
	p.Presented, p.Newest = &m, &newest
}

// LedgerErr makes the error of a ledger that a refusal stands for.
func (p Problem) LedgerErr() error {
	if err := p.workErr(); err != nil {
		return err
	}
	return p.Err()
}

// workErr makes the error that only a ledger returns, or nil if p is no such
// refusal.
func (p Problem) workErr() error {
	if p.WorkFacts == nil {
		return nil
	}
	var presented, newest fence.Mark
	if p.Presented != nil {
		presented = *p.Presented
	}
	if p.Newest != nil {
		newest = *p.Newest
	}
	switch p.Code {
	case Stale:
		return &fence.StaleError{
			Presented: presented.Stamp(), Newest: newest, PresentedOwner: p.OldOwner, NewestOwner: p.NewOwner,
		}
	case Collision, WrongKey, Repeated:
		return &fence.RefusedError{Err: guarded[p.Code], Presented: presented.Stamp(), Mark: newest}
	case State:
		return &work.StateError{What: p.What, Of: p.Of, State: p.WorkFacts.State, Why: p.Reason}
	case Conflict:
		return &work.ConflictError{Queue: p.Queue, Unique: p.Unique, ID: work.ID(p.ID)}
	case NotFound:
		if p.What != "" {
			return &work.NotFoundError{What: p.What}
		}
	}
	return nil
}

// workFact reads a member of a refusal about items and effects.
func (r *reader) workFact(name string, p *Problem) (known bool, err error) {
	var f WorkFacts
	if p.WorkFacts != nil {
		f = *p.WorkFacts
	}
	switch name {
	case "what":
		err = text(r, &f.What)
	case "of":
		err = text(r, &f.Of)
	case "state":
		err = text(r, &f.State)
	case "reason":
		err = text(r, &f.Reason)
	case "queue":
		err = text(r, &f.Queue)
	case "unique":
		err = text(r, &f.Unique)
	case "id":
		err = text(r, &f.ID)
	case "newest_owner":
		err = text(r, &f.NewOwner)
	case "presented_owner":
		err = text(r, &f.OldOwner)
	case "presented":
		f.Presented = &fence.Mark{}
		err = r.mark(f.Presented)
	case "newest":
		f.Newest = &fence.Mark{}
		err = r.mark(f.Newest)
	default:
		return false, nil
	}
	p.WorkFacts = &f
	return true, err
}
