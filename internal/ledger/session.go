package ledger

import (
	"context"
	"slices"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// session is one transaction. Its user holds the mutex of shared.
type session struct {
	*shared
	on *tables
}

func (s session) Apply(ctx context.Context, requests []work.Request) []work.Answer {
	answers := make([]work.Answer, len(requests))
	for i, req := range requests {
		if err := ctx.Err(); err != nil {
			answers[i].Err = store.Unknown(err)
			continue
		}
		if err := req.Check(); err != nil {
			answers[i].Err = err
			continue
		}
		now := tenure.Time(s.now())
		out, err := s.law.Apply(copied(s.find(req)), req, now)
		if out.Changed {
			s.on.items[out.Item.ID] = copied(out.Item)
		}
		for _, e := range out.Effects {
			s.law.Emit(s.on.effects, copiedEffect(e))
		}
		if s.law.Record(out.Refusal) {
			s.on.refusals = append(s.on.refusals, *out.Refusal)
		}
		answers[i] = work.Answer{Item: copied(out.Item), Repeated: err == nil && !out.Changed, Now: now, Err: err}
	}
	return answers
}

// find returns the item that a request is about, or the zero Item.
func (s session) find(req work.Request) work.Item {
	if it, known := s.on.items[req.ID]; known || req.Verb != work.Add || req.Unique == "" {
		return it
	}
	for _, it := range s.on.items {
		if it.Queue == req.Queue && it.Unique == req.Unique {
			return it
		}
	}
	return work.Item{}
}

func (s session) Claim(_ context.Context, c work.Claim) ([]work.Item, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	now := tenure.Time(s.now())
	var running, ready []work.Item
	granted := map[work.ID]work.Item{}
	for _, it := range s.on.items {
		if it.State == work.Done || !slices.Contains(c.Queues, it.Queue) {
			continue
		}
		if c.Granted(it) {
			running = append(running, copied(it))
		}
		if next, err := s.law.Grant(copied(it), c, now); err == nil {
			granted[it.ID], ready = next, append(ready, it)
		}
	}
	if c.Again && len(running) > 0 {
		s.turns(running)
		return running, nil
	}
	s.turns(ready)
	gates := s.gates(c.Queues, now)
	var claimed []work.Item
	for _, it := range ready {
		g := gates[it.Queue]
		if len(claimed) == c.Limit {
			break
		}
		if !g.Admits(it.Partition) {
			continue
		}
		g.Take(it.Partition)
		s.started(it, g, now)
		s.on.items[it.ID] = copied(granted[it.ID])
		claimed = append(claimed, copied(granted[it.ID]))
	}
	return claimed, nil
}

func (s session) Get(_ context.Context, id work.ID) (work.Item, error) {
	it, known := s.on.items[id]
	if !known {
		return work.Item{}, &work.NotFoundError{What: "item " + string(id)}
	}
	return copied(it), nil
}

// copied returns a copy that shares no bytes with the original.
func copied(it work.Item) work.Item {
	it.Payload, it.Checkpoint, it.Result = slices.Clone(it.Payload), slices.Clone(it.Checkpoint),
		slices.Clone(it.Result)
	it.Guards = slices.Clone(it.Guards)
	it.Record.History, it.Record.Guards = slices.Clone(it.Record.History), slices.Clone(it.Record.Guards)
	return it
}

func copiedEffect(e work.Effect) work.Effect {
	e.Body = slices.Clone(e.Body)
	return e
}
