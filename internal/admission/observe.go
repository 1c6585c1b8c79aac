package admission

import (
	"context"
	"time"

	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/guard/gate"
)

// This file has what a gate does if it refuses nothing (Options.RefuseNothing).
// It judges each write as it would otherwise, and raises the mark for those
// that it would admit. It takes no lease, makes no write wait for another, and
// never closes a resource.

// judgeWithin bounds how long a write waits to be judged, if the stores are
// slow. It is sent on then.
const judgeWithin = time.Second

// Judge returns the refusal of a write that the gate would refuse. The mark
// moves only for a write that it would admit, and only if the store has
// confirmed the owner: anybody may invent a stamp while the store is away.
func (g *Gate) Judge(ctx context.Context, w Write) error {
	within, cancel := context.WithTimeout(ctx, judgeWithin)
	defer cancel()
	var unsure error
	err := g.checkCurrent(within, w, func(why error) { unsure = why })
	if unsure != nil && ctx.Err() == nil {
		g.unsure(w, 0, unsure)
	}
	if err == nil || g.Flaw.JudgesByMarkAlone {
		err = g.judgeByMark(within, w, unsure == nil || g.Flaw.JudgesByMarkAlone)
	}
	if ctx.Err() != nil {
		return nil // the client has left: there is no judgement
	}
	return err
}

// judgeByMark asks the mark of a write's resource. If move is set, it also
// raises the mark. Judgements of one resource take turns, so that a repeated
// number is noticed.
func (g *Gate) judgeByMark(ctx context.Context, w Write, move bool) error {
	if !w.Stamped {
		return nil
	}
	s, err := g.join(w.Resource, w.Client)
	if err != nil {
		return err
	}
	a := &Arrival{s: s, w: w}
	defer a.Depart()
	if err := a.wait(ctx); err != nil {
		return err
	}
	defer s.leave()
	mark, done, err := s.look(ctx)
	if err != nil {
		return err
	}
	defer done()
	next, err := mark.Admit(w.Stamp)
	if err != nil || next == mark || !move {
		return err
	}
	if mark, err = s.marks.Raise(ctx, w.Stamp); err == nil {
		s.see(mark)
	} else if !guard.Refused(err) {
		return s.unreachable(err)
	}
	return err
}

// Observed tells of a write that the gate lets in, and whether it would have
// refused it.
func (g *Gate) Observed(wr Write, refusal error) {
	e := gate.Event{
		Kind: gate.Admitted, Resource: wr.Resource, Method: wr.What, Key: wr.Stamp.Key, Token: wr.Stamp.Token,
	}
	if refusal == nil {
		g.Emit(e)
		return
	}
	known := RefusalOf(refusal)
	e.Kind, e.Status, e.Code, e.Err = gate.Observed, known.Status, known.Code, refusal
	g.Emit(e)
	if g.Options.Notes != nil && wr.Stamped && (guard.Refused(refusal) || known.Code == "not_owned") {
		g.Options.Notes.LetIn(wr.Stamp, g.Options.NotedAs+wr.Resource, refusal)
	}
}

// unsure tells that the store did not say whether a write's owner is the
// current one. The status is 0 if the write was not refused for that.
func (g *Gate) unsure(w Write, status int, why error) {
	g.Emit(gate.Event{
		Kind: gate.Unsure, Resource: w.Resource, Method: w.What, Key: w.Stamp.Key, Token: w.Stamp.Token,
		Status: status, Err: why,
	})
	if g.Options.Notes != nil {
		g.Options.Notes.Unsure(w.Stamp, g.Options.NotedAs+w.Resource, status == 0)
	}
}
