package server

import (
	"context"
	"iter"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/croft-dev/croft/internal/wire"
	"github.com/croft-dev/croft/work"
)

// params are the parameters of a listing. The first wrong one counts.
type params struct {
	values url.Values
	err    error
}

// params reads the parameters of a call. It refuses those that are not known,
// and those given twice. A parameter may be given several times if its known
// name ends with a star.
func (c *call) params(known ...string) *params {
	values, err := url.ParseQuery(c.URL.RawQuery)
	p := &params{values: values}
	if err != nil {
		p.bad("what follows the question mark cannot be read; percent-encode it")
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		many := slices.Contains(known, name+"*") && len(values[name]) <= wire.MaxQueues
		if !many && (!slices.Contains(known, name) || len(values[name]) != 1) {
			p.bad("the parameter %.40q is not known, or given too often; known are %s", name,
				strings.ReplaceAll(strings.Join(known, ", "), "*", ""))
		}
	}
	return p
}

func (p *params) bad(format string, args ...any) {
	if p.err == nil {
		p.err = refuse(wire.NewProblem(wire.Invalid, format, args...))
	}
}

func (p *params) truth(name string) bool {
	value := p.values.Get(name)
	if value != "" && value != "true" {
		p.bad("%s=%.40q: write %s=true, or leave it out", name, value, name)
	}
	return value == "true"
}

func (p *params) limit() int {
	value := p.values.Get("limit")
	if value == "" {
		return 0
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 {
		p.bad("limit=%.40q: it must be a whole number above 0", value)
	}
	return n
}

func (p *params) since() time.Time {
	value := p.values.Get("since")
	if value == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, value)
	if err != nil {
		p.bad("since=%.40q: write it as in 2026-03-01T12:00:00.5Z", value)
	}
	return t.UTC()
}

// check returns the first error: of a parameter, or of the query made of them.
func (p *params) check(query error) error {
	if p.err != nil {
		return p.err
	}
	return query
}

// workList answers GET /v1/work/items: an item per line, without its bytes.
func (s *Server) workList(c *call) error {
	p := c.params("queue", "state*", "owner", "newest", "after", "limit")
	q := work.Query{
		Queue: p.values.Get("queue"), Owner: p.values.Get("owner"), Newest: p.truth("newest"),
		After: work.ID(p.values.Get("after")), Limit: p.limit(),
	}
	for _, state := range p.values["state"] {
		q.States = append(q.States, work.State(state))
	}
	if err := p.check(q.Check()); err != nil {
		return err
	}
	return listWork(s, c, q.Queue, &q.Limit,
		func(ctx context.Context) iter.Seq2[work.Item, error] { return s.ledger.List(ctx, q) },
		func(it work.Item) (string, []byte) {
			it = wire.Slim(it)
			it.Record.History = nil
			return it.Queue, wire.Line(it)
		})
}

// workEffects answers GET /v1/work/effects: an effect per line.
func (s *Server) workEffects(c *call) error {
	p := c.params("item", "queue", "state*", "orphaned", "after", "limit")
	q := work.EffectQuery{
		Item: work.ID(p.values.Get("item")), Queue: p.values.Get("queue"), Orphaned: p.truth("orphaned"),
		Limit: p.limit(),
	}
	for _, state := range p.values["state"] {
		q.States = append(q.States, work.EffectState(state))
	}
	if after := p.values.Get("after"); after != "" {
		var err error
		if q.After, err = work.ParseEffectID(after); err != nil {
			return err
		}
	}
	if err := p.check(q.Check()); err != nil {
		return err
	}
	return listWork(s, c, q.Queue, &q.Limit,
		func(ctx context.Context) iter.Seq2[work.Effect, error] { return s.ledger.Effects(ctx, q) },
		func(e work.Effect) (string, []byte) { return e.Queue, wire.Line(e) })
}

// workRefusals answers GET /v1/work/refusals: a refusal per line, the newest
// first. Refusals of dispatchers belong to no queue, so only who may read
// everything sees them.
func (s *Server) workRefusals(c *call) error {
	p := c.params("item", "queue", "since", "limit")
	q := work.RefusalQuery{
		Item: work.ID(p.values.Get("item")), Queue: p.values.Get("queue"), Since: p.since(), Limit: p.limit(),
	}
	if err := p.check(q.Check()); err != nil {
		return err
	}
	return listWork(s, c, q.Queue, &q.Limit,
		func(ctx context.Context) iter.Seq2[work.Refusal, error] { return s.ledger.Refusals(ctx, q) },
		func(r work.Refusal) (string, []byte) { return r.Queue, wire.Line(r) })
}

// workStats answers GET /v1/work/stats: the state of a queue per line.
func (s *Server) workStats(c *call) error {
	p := c.params("queue")
	queue := p.values.Get("queue")
	if err := p.check(work.Query{Queue: queue}.Check()); err != nil {
		return err
	}
	all := 0
	return listWork(s, c, queue, &all, func(ctx context.Context) iter.Seq2[work.Stats, error] {
		return func(yield func(work.Stats, error) bool) {
			stats, err := s.ledger.Stats(ctx, queue)
			if err != nil {
				yield(work.Stats{}, err)
				return
			}
			for _, each := range stats {
				if !yield(each, nil) {
					return
				}
			}
		}
	}, func(each work.Stats) (string, []byte) { return each.Queue, wire.Line(each) })
}

// listWork sends a listing of the ledger. show returns the queue and the line
// of a value. If values have to be hidden, listWork counts itself, because the
// ledger would count the hidden ones, too.
func listWork[T any](
	s *Server, c *call, queue string, limit *int, open func(context.Context) iter.Seq2[T, error],
	show func(T) (queue string, line []byte),
) error {
	if queue != "" && !s.mayIn(c.id, Read, queue) {
		open = func(context.Context) iter.Seq2[T, error] { return func(func(T, error) bool) {} }
	}
	most := 0
	if s.o.Access != nil && queue == "" {
		most, *limit = *limit, 0
	}
	return lines(s, c, most, wire.LastWorkLine, open, func(v T) []byte {
		queue, line := show(v)
		if !s.mayIn(c.id, Read, queue) {
			return nil
		}
		return line
	})
}

// workWake answers GET /v1/work/wake: an event soon after something may have
// become ready in one of the queues, or for the dispatcher. The answer begins
// when the hints have begun.
func (s *Server) workWake(c *call) error {
	p := c.params("queue*", "effects")
	wanted := work.Wanted{Queues: p.values["queue"], Effects: p.truth("effects")}
	if err := p.check(nil); err != nil {
		return err
	}
	for _, queue := range wanted.Queues {
		if err := (work.Query{Queue: queue}).Check(); err != nil {
			return err
		}
		if !s.mayIn(c.id, Read, queue) {
			return refuse(unseen())
		}
	}
	if wanted.Effects {
		if err := s.everything(c.id, "wait for effects"); err != nil {
			return err
		}
	}
	open := func(ctx context.Context) (<-chan struct{}, error) {
		hints, _, err := s.ledger.wake(ctx, wanted)
		return hints, err
	}
	return stream(s, c, open, "ready", func(struct{}) string { return "work" })
}
