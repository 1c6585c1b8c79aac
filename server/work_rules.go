package server

import (
	"context"
	"iter"
	"net/http"

	"github.com/croft-dev/croft/internal/wire"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// workRules answers GET /v1/work/rules: a rule per line.
func (s *Server) workRules(c *call) error {
	p := c.params("queue", "limit")
	q := work.RuleQuery{Queue: p.values.Get("queue"), Limit: p.limit()}
	if err := p.check(q.Check()); err != nil {
		return err
	}
	return listWork(s, c, q.Queue, &q.Limit,
		func(ctx context.Context) iter.Seq2[work.Rule, error] { return s.ledger.Rules(ctx, q) },
		func(r work.Rule) (string, []byte) { return r.Queue, wire.Rule(r) })
}

// workGovern answers POST /v1/work/rules: an operator's change of the rule of a
// queue.
func (s *Server) workGovern(c *call) error {
	body, err := c.body()
	if err != nil {
		return err
	}
	change, err := wire.ReadRuleChange(body)
	if err != nil {
		return err
	}
	if s.o.Access != nil && c.id.Name != "" {
		change.Actor = c.id.Name
	}
	rule, err := s.govern(c, change)
	s.acted(c, Event{
		Act: tenure.Verb(change.Verb), Key: ruleName(change.Queue, change.Partition),
		Actor: change.Actor, Note: change.Note, Err: err,
	})
	if err != nil {
		return err
	}
	c.send(http.StatusOK, wire.JSON, wire.Rule(rule))
	return nil
}

// ruleName names a rule in the log of acts.
func ruleName(queue, partition string) string {
	if partition == "" {
		return queue
	}
	return queue + " partition " + partition
}

func (s *Server) govern(c *call, change work.RuleChange) (work.Rule, error) {
	if err := change.Check(); err != nil {
		return work.Rule{}, err
	}
	if err := s.admitQueue(c.id, Operate, change.Queue, string(change.Verb)); err != nil {
		return work.Rule{}, err
	}
	leave, err := s.ledger.enter(c)
	if err != nil {
		return work.Rule{}, err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(c.Context(), s.o.CallTimeout)
	defer cancel()
	rule, err := s.ledger.Govern(ctx, change)
	if err == nil {
		s.ledger.hints.changed(change.Queue)
	}
	return rule, err
}
