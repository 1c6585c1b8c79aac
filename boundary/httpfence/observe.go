package httpfence

import (
	"context"
	"net/http"
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

// judge returns the refusal of a write that the gate would refuse. The mark
// moves only for a write that it would admit, and only if the store has
// confirmed the owner: anybody may invent a stamp while the store is away.
func (g *Gate) judge(ctx context.Context, w write) error {
	within, cancel := context.WithTimeout(ctx, judgeWithin)
	defer cancel()
	var unsure error
	err := g.checkCurrent(within, w, func(why error) { unsure = why })
	if unsure != nil && ctx.Err() == nil {
		g.unsure(w, 0, unsure)
	}
	if err == nil || g.flaw.judgesByMarkAlone {
		err = g.judgeByMark(within, w, unsure == nil || g.flaw.judgesByMarkAlone)
	}
	if ctx.Err() != nil {
		return nil // the client has left: there is no judgement
	}
	return err
}

// judgeByMark asks the mark of a write's resource. If move is set, it also
// raises the mark. Judgements of one resource take turns, so that a repeated
// number is noticed.
func (g *Gate) judgeByMark(ctx context.Context, w write, move bool) error {
	if !w.stamped {
		return nil
	}
	s, err := g.join(w.resource, w.client)
	if err != nil {
		return err
	}
	a := &arrival{s: s, w: w}
	defer a.depart()
	if err := a.wait(ctx); err != nil {
		return err
	}
	defer s.leave()
	mark, done, err := s.look(ctx)
	if err != nil {
		return err
	}
	defer done()
	next, err := mark.Admit(w.stamp)
	if err != nil || next == mark || !move {
		return err
	}
	if mark, err = s.marks.Raise(ctx, w.stamp); err == nil {
		s.see(mark)
	} else if !guard.Refused(err) {
		return s.unreachable(err)
	}
	return err
}

// observed tells of a write that the gate lets in, and whether it would have
// refused it.
func (g *Gate) observed(wr write, refusal error) {
	e := gate.Event{
		Kind: gate.Admitted, Resource: wr.resource, Method: wr.what, Key: wr.stamp.Key, Token: wr.stamp.Token,
	}
	if refusal == nil {
		g.emit(e)
		return
	}
	known := refusalOf(refusal)
	e.Kind, e.Status, e.Code, e.Err = gate.Observed, known.status, known.code, refusal
	g.emit(e)
	if g.o.Notes != nil && wr.stamped && (guard.Refused(refusal) || known.code == "not_owned") {
		g.o.Notes.LetIn(wr.stamp, "http:"+wr.resource, refusal)
	}
}

// unsure tells that the store did not say whether a write's owner is the
// current one. The status is 0 if the write was not refused for that.
func (g *Gate) unsure(w write, status int, why error) {
	g.emit(gate.Event{
		Kind: gate.Unsure, Resource: w.resource, Method: w.what, Key: w.stamp.Key, Token: w.stamp.Token,
		Status: status, Err: why,
	})
	if g.o.Notes != nil {
		g.o.Notes.Unsure(w.stamp, "http:"+w.resource, status == 0)
	}
}

// observe passes a request on to the service, and tells whether the proxy would
// have refused it. It still refuses a host name that is not its own: that keeps
// web pages out, and says nothing about owners.
func (p *Proxy) observe(w http.ResponseWriter, r *http.Request) {
	wr := write{what: r.Method}
	if err := p.checkHost(r); err != nil {
		p.refuse(w, r, wr, err)
		return
	}
	err := checkUpgrade(r)
	if err == nil {
		wr, err = p.gate.read(r)
	}
	switch {
	case err != nil:
	case wr.resource != "":
		err = p.gate.judge(r.Context(), wr)
	case !wr.exempt:
		err = checkNoBody(r)
	}
	if err != nil || wr.resource != "" {
		p.gate.observed(wr, err)
	}
	p.reads.ServeHTTP(w, r)
}
