package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/croft-dev/croft/internal/wire"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// workAPI lists the calls about work items. Without a ledger the answer to each
// is that there is none.
func (s *Server) workAPI() (all []route) {
	for pattern, h := range map[string]func(*call) error{
		"POST /v1/work/apply":             s.workApply,
		"POST /v1/work/items/{id}/{verb}": s.workItem,
		"POST /v1/work/claim":             s.workClaim,
		"POST /v1/work/take":              s.workTake,
		"POST /v1/work/settle":            s.workSettle,
		"POST /v1/work/prune":             s.workPrune,
		"GET /v1/work/items/{id}":         s.workGet,
		"GET /v1/work/items":              s.workList,
		"GET /v1/work/effects":            s.workEffects,
		"GET /v1/work/refusals":           s.workRefusals,
		"GET /v1/work/stats":              s.workStats,
		"GET /v1/work/rules":              s.workRules,
		"POST /v1/work/rules":             s.workGovern,
		"GET /v1/work/now":                s.workNow,
		"GET /v1/work/wake":               s.workWake,
	} {
		all = append(all, route{pattern, func(c *call) error {
			if s.ledger == nil {
				return refuse(wire.NewProblem(wire.Unsupported, "this server keeps no work items: "+
					"the store behind it has no ledger; serve a SQLite file or PostgreSQL"))
			}
			return h(c)
		}})
	}
	return all
}

// workApply answers POST /v1/work/apply: a batch of requests about items, with
// an answer each.
func (s *Server) workApply(c *call) error {
	body, err := s.longBody(c)
	if err != nil {
		return err
	}
	requests, err := wire.ReadWorkBatch(body)
	if err != nil {
		return err
	}
	if len(requests) > 1 && wire.Weigh(requests) > wire.MaxBatch {
		return refuse(wire.NewProblem(wire.Invalid, "requests: the batch is too heavy: a completion, an act by hand "+
			"and a requeue count as %d, and all together at most %d", wire.Weight(work.Request{Verb: work.Complete}),
			wire.MaxBatch))
	}
	answers, refused, err := s.applyWork(c, requests)
	if err != nil {
		return err
	}
	c.send(http.StatusOK, wire.JSON, wire.WorkAnswers(answers, refused))
	return nil
}

// workItem answers POST /v1/work/items/{id}/VERB: one request.
func (s *Server) workItem(c *call) error {
	id, err := c.itemID()
	if err != nil {
		return err
	}
	body, err := s.longBody(c)
	if err != nil {
		return err
	}
	q, err := wire.ReadWorkCall(body, work.Verb(c.PathValue("verb")), id)
	if err != nil {
		return err
	}
	answers, refused, err := s.applyWork(c, []work.Request{q})
	if err != nil {
		return err
	}
	if p, mine := refused[0]; mine {
		return refuse(p)
	}
	if answers[0].Err != nil {
		return answers[0].Err
	}
	c.send(http.StatusOK, wire.JSON, wire.WorkAnswer(answers[0]))
	return nil
}

// applyWork carries out requests as far as the client may make them. refused
// has the server's own refusals, by index.
func (s *Server) applyWork(c *call, requests []work.Request) ([]work.Answer, map[int]wire.Problem, error) {
	give, ok := s.batchShares.take(c.id.Name, wire.Weigh(requests))
	if !ok {
		return nil, nil, busy("requests of one client")
	}
	defer give()
	refused := map[int]wire.Problem{}
	admitted := make([]work.Request, 0, len(requests))
	var index []int // of the admitted requests
	late := s.lookUntil()
	for i := range requests {
		q := &requests[i]
		queue, err := s.admitWork(c, q, late)
		if err != nil {
			refused[i] = problemOf(err)
			s.auditWork(c, *q, queue, err)
			continue
		}
		admitted, index = append(admitted, *q), append(index, i)
	}
	c.told.Requests = len(requests)
	some, err := s.ledger.batcher.apply(c.Context(), admitted)
	if err != nil {
		return nil, nil, err
	}
	answers := make([]work.Answer, len(requests))
	for n, a := range some {
		s.ledger.queues.keep(a.Item)
		s.ledger.hints.tell(admitted[n], a)
		s.auditWork(c, admitted[n], a.Item.Queue, a.Err)
		if by := admitted[n]; a.Err == nil && s.o.SignKey != nil && (by.Verb.ByHand() || by.Verb == work.Requeue) &&
			a.Item.Record.Grant == by.Secret.Grant() {
			a.Item.Signature = s.o.SignKey.Sign(a.Item.Record.Stamp()).Signature
		}
		answers[index[n]] = s.concealItem(c.id, admitted[n], a)
	}
	err = unanswered(len(some), func(i int) error { return some[i].Err })
	if err != nil && len(refused) == 0 {
		return nil, nil, err
	}
	return answers, refused, nil
}

// problemOf returns the refusal in an error of the server or of its ledger.
func problemOf(err error) wire.Problem {
	var r refusal
	if errors.As(err, &r) {
		return r.Problem
	}
	return wire.ProblemOf(err)
}

// workVerb returns the verb of a policy that a request about an item needs. A
// requeue needs no more than Work: workers run a reconciler, and the ledger
// requeues only lapsed items.
func workVerb(v work.Verb) Verb {
	switch {
	case v == work.Add:
		return Add
	case v.ByOwner() || v == work.Requeue:
		return Work
	}
	return Operate
}

// mayIn reports whether an identity may do something in a queue. The keys of
// its items begin with its name and a slash, so rules about a queue are rules
// about that prefix. The empty name stands for all queues together.
func (s *Server) mayIn(id Identity, verb Verb, queue string) bool {
	if queue == "" {
		return s.may(id, verb, "")
	}
	return s.may(id, verb, queue+"/")
}

// admitQueue returns an error if an identity may not do this in a queue. It
// answers for a queue that the identity may not see as for an unused one.
func (s *Server) admitQueue(id Identity, verb Verb, queue string, what string) error {
	switch {
	case !s.mayIn(id, Read, queue):
		return refuse(unseen())
	case !s.mayIn(id, verb, queue):
		return refuse(wire.NewProblem(wire.NotAllowed, "%s may not %s in queue %q; ask the operator of this server",
			id.Name, what, queue))
	}
	return nil
}

// admitWork decides whether a request may go to the ledger, and writes the
// identity's name into it. It returns the item's queue as far as it looked.
func (s *Server) admitWork(c *call, q *work.Request, late time.Time) (queue string, err error) {
	if s.o.Access != nil && c.id.Name != "" {
		if q.Verb.ByHand() {
			q.Actor = c.id.Name
		}
		if q.Verb == work.Takeover || q.Verb == work.Requeue {
			q.Owner = c.id.Name
		}
	}
	if err := q.Check(); err != nil || s.o.Access == nil {
		return "", err
	}
	if q.Verb == work.Add {
		return q.Queue, s.admitQueue(c.id, Add, q.Queue, string(q.Verb))
	}
	// An owner proves with its secret that it was granted the item. Others ask
	// the ledger.
	if queue, err = s.queueOf(c, q.ID, !q.Verb.ByOwner(), late); err != nil {
		return "", err
	}
	if !s.mayIn(c.id, Read, queue) {
		return "", notThere(q.ID)
	}
	return queue, s.admitQueue(c.id, workVerb(q.Verb), queue, string(q.Verb))
}

// notThere answers about an item that the ledger does not remember, and about
// an item that the identity may not see. The two answers do not differ.
func notThere(id work.ID) error { return &work.NotFoundError{What: "item " + string(id)} }

// lookUntil is until when the items of a batch that begins now are looked up.
func (s *Server) lookUntil() time.Time { return time.Now().Add(s.o.CallTimeout) }

// queueOf returns the queue of an item. The queue of an item never changes, so
// the server remembers it.
func (s *Server) queueOf(c *call, id work.ID, fresh bool, late time.Time) (string, error) {
	if queue := s.ledger.queues.of(id); queue != "" && !fresh {
		return queue, nil
	}
	if time.Now().After(late) {
		return "", busy("items to look up")
	}
	it, err := s.readItem(c, id)
	return it.Queue, err
}

// readItem reads an item from the ledger.
func (s *Server) readItem(c *call, id work.ID) (work.Item, error) {
	leave, err := s.ledger.enter(c)
	if err != nil {
		return work.Item{}, err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(c.Context(), s.o.CallTimeout)
	defer cancel()
	it, err := s.ledger.Get(ctx, id)
	if errors.Is(err, work.ErrNotFound) {
		err = notThere(id)
	}
	if err != nil {
		return work.Item{}, err
	}
	s.ledger.queues.keep(it)
	return it, nil
}

// concealItem takes the item out of an answer if the identity may not see it.
// An add may meet such an item under its ID.
func (s *Server) concealItem(id Identity, q work.Request, a work.Answer) work.Answer {
	if a.Item.IsZero() || s.mayIn(id, Read, a.Item.Queue) {
		return a
	}
	hidden := work.Answer{Now: a.Now, Err: notThere(q.ID)}
	if q.Verb == work.Add {
		hidden.Err = &work.ConflictError{ID: q.ID}
	}
	return hidden
}

// auditWork tells of an act by hand on an item.
func (s *Server) auditWork(c *call, q work.Request, queue string, err error) {
	if !q.Verb.ByHand() {
		return
	}
	key := string(q.ID)
	if queue != "" {
		key = work.Item{ID: q.ID, Queue: queue}.Key()
	}
	s.acted(c, Event{Act: tenure.Verb(q.Verb), Key: key, Owner: q.Owner, Actor: q.Actor, Note: q.Note, Err: err})
}

// itemID returns the ID of an item in the path.
func (c *call) itemID() (work.ID, error) {
	id := work.ID(c.PathValue("id"))
	return id, id.Check()
}

// workGet answers GET /v1/work/items/{id}: the item with everything.
func (s *Server) workGet(c *call) error {
	id, err := c.itemID()
	if err != nil {
		return err
	}
	it, err := s.readItem(c, id)
	if err == nil && !s.mayIn(c.id, Read, it.Queue) {
		err = notThere(id)
	}
	if err != nil {
		return err
	}
	c.send(http.StatusOK, wire.JSON, wire.Item(it))
	return nil
}

// everything refuses identities that are no operators of everything.
func (s *Server) everything(id Identity, what string) error {
	if !s.may(id, Operate, "") {
		return refuse(wire.NewProblem(wire.NotAllowed, "only an operator of all keys may %s", what))
	}
	return nil
}

// workTake answers POST /v1/work/take. Effects of all queues go to one
// dispatcher, so it must be allowed everything.
func (s *Server) workTake(c *call) error {
	if err := s.everything(c.id, "deliver effects"); err != nil {
		return err
	}
	body, err := c.body()
	if err != nil {
		return err
	}
	q, err := wire.ReadTaking(body)
	if err == nil {
		err = q.Check()
	}
	if err != nil {
		return err
	}
	effects, err := s.take(c, q)
	if err != nil {
		return err
	}
	c.send(http.StatusOK, wire.JSON, wire.Effects(effects))
	return nil
}

// take takes effects in pieces, until their bodies are long together. The
// dispatcher asks for the others next.
func (s *Server) take(c *call, q work.Taking) (taken []work.Effect, err error) {
	leave, err := s.ledger.enter(c)
	if err != nil {
		return nil, err
	}
	defer leave()
	left, size := q.Limit, 0
	for {
		q.Limit = min(left, piece)
		ctx, cancel := context.WithTimeout(c.Context(), s.o.CallTimeout)
		some, err := s.ledger.Take(ctx, q)
		cancel()
		if err != nil && len(taken) == 0 {
			return nil, err
		}
		for _, e := range some {
			size += len(e.Body)
		}
		taken, left = append(taken, some...), left-len(some)
		if err != nil || len(some) < q.Limit || left == 0 || size > maxBytes {
			return taken, nil
		}
	}
}

// workSettle answers POST /v1/work/settle: settlements, with an answer each.
func (s *Server) workSettle(c *call) error {
	body, err := c.body()
	if err != nil {
		return err
	}
	settlements, err := wire.ReadSettlements(body)
	if err != nil {
		return err
	}
	give, ok := s.batchShares.take(c.id.Name, len(settlements))
	if !ok {
		return busy("requests of one client")
	}
	defer give()
	refused := map[int]wire.Problem{}
	admitted := make([]work.Settlement, 0, len(settlements))
	var index []int // of the admitted settlements
	late := s.lookUntil()
	for i := range settlements {
		if err := s.admitSettlement(c, &settlements[i], late); err != nil {
			refused[i] = problemOf(err)
			s.auditSettlement(c, settlements[i], err)
			continue
		}
		admitted, index = append(admitted, settlements[i]), append(index, i)
	}
	c.told.Requests = len(settlements)
	answers := make([]work.EffectAnswer, len(settlements))
	if len(admitted) > 0 {
		leave, err := s.ledger.enter(c)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(c.Context(), s.o.CallTimeout)
		some := s.ledger.Settle(ctx, admitted)
		cancel()
		leave()
		if len(some) != len(admitted) {
			some = work.FailedEffects(len(admitted),
				fmt.Errorf("%d answers to %d settlements", len(some), len(admitted)))
		}
		for n, a := range some {
			s.auditSettlement(c, admitted[n], a.Err)
			answers[index[n]] = a
		}
		err = unanswered(len(some), func(i int) error { return some[i].Err })
		if err != nil && len(refused) == 0 {
			return err
		}
	}
	c.send(http.StatusOK, wire.JSON, wire.EffectAnswers(answers, refused))
	return nil
}

// admitSettlement decides whether a settlement may go to the ledger. One by
// hand is an operator's act in the effect's queue.
func (s *Server) admitSettlement(c *call, q *work.Settlement, late time.Time) error {
	if s.o.Access != nil && c.id.Name != "" && q.ByHand() {
		q.Actor = c.id.Name
	}
	if err := q.Check(); err != nil || s.o.Access == nil {
		return err
	}
	if !q.ByHand() {
		return s.everything(c.id, "deliver effects")
	}
	queue, err := s.queueOf(c, q.Effect.Item, true, late)
	if errors.Is(err, work.ErrNotFound) || err == nil && !s.mayIn(c.id, Read, queue) {
		return &work.NotFoundError{What: "effect " + q.Effect.String()}
	}
	if err != nil {
		return err
	}
	return s.admitQueue(c.id, Operate, queue, "settle effects")
}

// auditSettlement tells of a settlement by hand.
func (s *Server) auditSettlement(c *call, q work.Settlement, err error) {
	if !q.ByHand() {
		return
	}
	s.acted(c, Event{
		Act: tenure.Verb(work.VerbSettle), Key: q.Effect.String(), Actor: q.Actor, Note: q.Note, Err: err,
	})
}

// workPrune answers POST /v1/work/prune. It is about all queues.
func (s *Server) workPrune(c *call) error {
	if err := s.everything(c.id, "prune"); err != nil {
		return err
	}
	body, err := c.body()
	if err != nil {
		return err
	}
	keep, limit, err := wire.ReadPrune(body)
	if err == nil {
		_, err = keep.Pruning(limit)
	}
	if err != nil {
		return err
	}
	leave, err := s.ledger.enter(c)
	if err != nil {
		return err
	}
	defer leave()
	pruned, err := s.ledger.Prune(c.Context(), keep, limit)
	if err != nil {
		return err
	}
	c.send(http.StatusOK, wire.JSON, wire.Pruned(pruned))
	return nil
}

// workNow answers GET /v1/work/now: the time of the ledger's clock.
func (s *Server) workNow(c *call) error {
	ctx, cancel := context.WithTimeout(c.Context(), s.o.CallTimeout)
	defer cancel()
	now, err := s.ledger.Now(ctx)
	if err != nil {
		return store.Unknown(err)
	}
	c.send(http.StatusOK, wire.JSON, wire.Moment(now))
	return nil
}
