package worktest

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"slices"
	"sync/atomic"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/ledger"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// flaw is one way to get a ledger wrong. The suite must notice it in the named
// group.
type flaw struct {
	name  string
	group string
	spoil func(l *ledger.Law)
	wrap  func(l, base *ledger.Ledger) work.Ledger // a flaw outside the law; may be nil
	rot   rot
}

// lawFlaw is a flaw of the law alone.
type lawFlaw struct {
	name  string
	group string
	spoil func(l *ledger.Law)
}

func lawFlaws(of []lawFlaw) []flaw {
	var all []flaw
	for _, f := range of {
		all = append(all, flaw{name: f.name, group: f.group, spoil: f.spoil})
	}
	return all
}

// before changes the item and the request that the law sees.
func before(change func(it *work.Item, req *work.Request, now time.Time)) func(*ledger.Law) {
	return func(l *ledger.Law) {
		l.Apply = func(it work.Item, req work.Request, now time.Time) (work.Outcome, error) {
			change(&it, &req, now)
			return work.Apply(it, req, now)
		}
	}
}

// after changes the law's decision.
func after(change func(was work.Item, req work.Request, out *work.Outcome, err *error, now time.Time)) func(*ledger.Law) {
	return func(l *ledger.Law) {
		l.Apply = func(it work.Item, req work.Request, now time.Time) (work.Outcome, error) {
			out, err := work.Apply(it, req, now)
			change(it, req, &out, &err, now)
			return out, err
		}
	}
}

// pretend admits every requester, for some verbs.
func pretend(verbs ...work.Verb) func(*ledger.Law) {
	return func(l *ledger.Law) {
		l.Apply = func(it work.Item, req work.Request, now time.Time) (work.Outcome, error) {
			out, err := work.Apply(it, req, now)
			if !slices.Contains(verbs, req.Verb) || !errors.Is(err, work.ErrStale) {
				return out, err
			}
			// A ledger that looks only at the id behaves like this.
			forged := it
			forged.State, forged.Record.State, forged.Record.Ended = work.Running, tenure.Held, ""
			forged.Record.Token, forged.Record.Grant = req.Token, req.Secret.Grant()
			forged.Record.TTL = time.Minute
			for i := range forged.Record.History {
				forged.Record.History[i].Ended = tenure.EndExpired
			}
			forged.Record.History = append(forged.Record.History, tenure.Term{Token: req.Token, Grant: forged.Record.Grant, State: tenure.Held, Cause: tenure.Released})
			return work.Apply(forged, req, now)
		}
	}
}

func flaws() []flaw {
	return slices.Concat(staleFlaws(), itemFlaws(), claimFlaws(), effectFlaws(), keepingFlaws(), handleFlaws(), damageFlaws(), guardFlaws(), ruleFlaws())
}

// ruled changes what claims know of rules.
func ruled(change func(r *work.Rule)) func(*ledger.Law) {
	return func(l *ledger.Law) {
		l.Rule = func(r work.Rule) work.Rule {
			change(&r)
			return r
		}
	}
}

// inOrder makes a claim take items in an order that knows no partitions.
func inOrder(earlier func(a, b work.Item) bool) func([]work.Item, func(string, string, int) time.Time) {
	return func(items []work.Item, _ func(string, string, int) time.Time) {
		slices.SortFunc(items, func(a, b work.Item) int {
			if earlier(a, b) {
				return -1
			}
			return 1
		})
	}
}

// ruleFlaws are about the rules of queues.
func ruleFlaws() []flaw {
	all := lawFlaws([]lawFlaw{
		{"claims from paused queues", "rules", ruled(func(r *work.Rule) { r.Paused = false })},
		{"has no limit of running items", "limits", ruled(func(r *work.Rule) { r.Running = 0 })},
		{"lets one more run", "limits", ruled(func(r *work.Rule) {
			if r.Running > 0 {
				r.Running++
			}
		})},
		{"counts only what one claim takes", "limits", func(l *ledger.Law) { l.Running = func(int) int { return 0 } }},
		{"has no limit of starts", "limits", ruled(func(r *work.Rule) { r.Starts = 0 })},
		{"forgets starts too early", "limits", ruled(func(r *work.Rule) { r.Interval /= 2 })},
		{"has no limits of partitions", "partitions", ruled(func(r *work.Rule) {
			if r.Partition != "" {
				r.Limit = work.Limit{}
			}
		})},
		{"pauses no partition", "partitions", ruled(func(r *work.Rule) { r.Paused = r.Paused && r.Partition == "" })},
		{"has no limit for each partition", "partitions", ruled(func(r *work.Rule) {
			if r.Partition == work.EachPartition {
				r.Limit = work.Limit{}
			}
		})},
		{"lets partitions take no turns", "partitions", func(l *ledger.Law) { l.Turns = inOrder(work.Item.Before) }},
		{"forgets whose turn it was", "partitions", func(l *ledger.Law) {
			l.Turns = func(items []work.Item, _ func(string, string, int) time.Time) {
				work.Turns(items, func(string, string, int) time.Time { return time.Time{} })
			}
		}},
		{"keeps no partition", "partitions", before(func(it *work.Item, req *work.Request, _ time.Time) {
			req.Partition = ""
		})},
		{"stays paused for ever", "rules", func(l *ledger.Law) {
			l.Govern = func(r work.Rule, c work.RuleChange, now time.Time) (work.Rule, error) {
				next, err := work.Govern(r, c, now)
				next.Paused = next.Paused || r.Paused
				return next, err
			}
		}},
		{"forgets who changed a rule", "rules", func(l *ledger.Law) {
			l.Govern = func(r work.Rule, c work.RuleChange, now time.Time) (work.Rule, error) {
				next, err := work.Govern(r, c, now)
				next.Actor = r.Actor
				return next, err
			}
		}},
	})
	return append(all,
		flaw{name: "lists only rules that restrict", group: "rules", wrap: func(l, _ *ledger.Ledger) work.Ledger { return current{l} }},
		flaw{name: "pauses a handle and not the queue", group: "rules", wrap: func(l, _ *ledger.Ledger) work.Ledger { return &alone{Ledger: l} }},
	)
}

type current struct{ *ledger.Ledger }

func (l current) Rules(ctx context.Context, q work.RuleQuery) iter.Seq2[work.Rule, error] {
	return func(yield func(work.Rule, error) bool) {
		for r, err := range l.Ledger.Rules(ctx, q) {
			if (err != nil || r.Restricts()) && !yield(r, err) {
				return
			}
		}
	}
}

// alone claims as if there were no rules but those that it has made itself.
type alone struct {
	*ledger.Ledger
	mine atomic.Bool
}

func (l *alone) Govern(ctx context.Context, c work.RuleChange) (work.Rule, error) {
	l.mine.Store(true)
	return l.Ledger.Govern(ctx, c)
}

func (l *alone) Claim(ctx context.Context, c work.Claim) ([]work.Item, error) {
	if l.mine.Load() {
		return l.Ledger.Claim(ctx, c)
	}
	for r := range l.Ledger.Rules(ctx, work.RuleQuery{}) {
		if _, err := l.Ledger.Govern(ctx, work.RuleChange{Verb: work.Resume, Queue: r.Queue, Actor: "x", Note: "x"}); err != nil {
			return nil, err
		}
	}
	return l.Ledger.Claim(ctx, c)
}

// guardFlaws are about the guards that items name.
func guardFlaws() []flaw {
	burnsNothing := func(verb work.Verb) func(*ledger.Law) {
		return after(func(was work.Item, req work.Request, out *work.Outcome, _ *error, _ time.Time) {
			if req.Verb == verb && out.Changed {
				out.Item.Record.Token = was.Record.Token
				out.Item.Record.History[len(out.Item.Record.History)-1].Token = was.Record.Token
			}
		})
	}
	all := lawFlaws([]lawFlaw{
		{"keeps no guards", "guards", before(func(_ *work.Item, req *work.Request, _ time.Time) { req.Guards = nil })},
		{"keeps the templates of guards", "guards", after(func(_ work.Item, req work.Request, out *work.Outcome, _ *error, _ time.Time) {
			if req.Verb == work.Add && out.Changed {
				out.Item.Guards = req.Guards
			}
		})},
		{"adds other guards under the same key", "guards", before(func(it *work.Item, req *work.Request, _ time.Time) {
			if req.Verb == work.Add && !it.IsZero() {
				it.Guards = work.Request{Queue: it.Queue, ID: it.ID, Guards: req.Guards}.Named()
			}
		})},
		{"forgets the guards at a claim", "guards", func(l *ledger.Law) {
			l.Grant = func(it work.Item, c work.Claim, now time.Time) (work.Item, error) {
				next, err := work.Grant(it, c, now)
				next.Guards = nil
				return next, err
			}
		}},
		{"cancels without burning a token", "guards", burnsNothing(work.Cancel)},
		{"takes over without burning a token", "guards", burnsNothing(work.Takeover)},
		{"replays without burning a token", "guards", burnsNothing(work.Replay)},
	})
	return append(all,
		flaw{name: "lists items without their guards", group: "guards", wrap: func(l, _ *ledger.Ledger) work.Ledger { return unlisted{l} }},
		flaw{name: "takes any number of guards", group: "guards", wrap: func(l, _ *ledger.Ledger) work.Ledger { return boundless{l} }},
		flaw{name: "answers acts without guards", group: "guards", wrap: func(l, _ *ledger.Ledger) work.Ledger { return curt{l} }},
	)
}

type unlisted struct{ *ledger.Ledger }

func (l unlisted) List(ctx context.Context, q work.Query) iter.Seq2[work.Item, error] {
	return func(yield func(work.Item, error) bool) {
		for it, err := range l.Ledger.List(ctx, q) {
			it.Guards = nil
			if !yield(it, err) {
				return
			}
		}
	}
}

// boundless cuts the guards of a request until they are valid.
type boundless struct{ *ledger.Ledger }

func (l boundless) Apply(ctx context.Context, requests []work.Request) []work.Answer {
	requests = slices.Clone(requests)
	for i := range requests {
		for requests[i].Check() != nil && len(requests[i].Guards) > 0 {
			requests[i].Guards = requests[i].Guards[1:]
		}
	}
	return l.Ledger.Apply(ctx, requests)
}

type curt struct{ *ledger.Ledger }

func (l curt) Apply(ctx context.Context, requests []work.Request) []work.Answer {
	answers := l.Ledger.Apply(ctx, requests)
	for i := range answers {
		answers[i].Item.Guards = nil
	}
	return answers
}

// staleFlaws let an owner write after it was replaced.
func staleFlaws() []flaw {
	return lawFlaws([]lawFlaw{
		{"admits a stale complete", "stale", pretend(work.Complete)},
		{"admits a stale fail", "stale", pretend(work.Fail)},
		{"accepts the checkpoint of a stale owner", "stale", pretend(work.Checkpoint)},
		{"accepts the report of a stale owner", "stale", pretend(work.Report)},
		{"renews for a stale owner", "stale", pretend(work.Heartbeat)},
		{"writes the effects of a refused completion", "stale", after(func(was work.Item, req work.Request, out *work.Outcome, err *error, now time.Time) {
			if errors.Is(*err, work.ErrStale) && req.Verb == work.Complete {
				for _, m := range req.Effects {
					out.Effects = append(out.Effects, work.Effect{EffectID: work.EffectID{Item: was.ID, Name: m.Name, Generation: was.Generation}, Queue: was.Queue, To: m.Name, State: work.Pending, Ready: now, Created: now, Token: req.Token})
				}
			}
		})},
		{"does not record refusals", "stale", func(l *ledger.Law) { l.Record = func(*work.Refusal) bool { return false } }},
		{"forgets who was refused", "refusals", after(func(_ work.Item, _ work.Request, out *work.Outcome, _ *error, _ time.Time) {
			if out.Refusal != nil {
				out.Refusal.PresentedOwner = ""
			}
		})},
		{"records what is no stale write", "refusals", after(func(was work.Item, req work.Request, out *work.Outcome, err *error, now time.Time) {
			if errors.Is(*err, work.ErrState) {
				out.Refusal = &work.Refusal{At: now, Item: was.ID, Queue: was.Queue, Verb: req.Verb}
			}
		})},
		{"compares the token and not the grant", "owning", before(func(it *work.Item, req *work.Request, _ time.Time) {
			if req.Verb == work.Heartbeat && it.Record.Token == req.Token && it.State == work.Running {
				it.Record.Grant = req.Secret.Grant()
				it.Record.History[len(it.Record.History)-1].Grant = it.Record.Grant
			}
		})},
	})
}

// itemFlaws decide differently from the law.
func itemFlaws() []flaw {
	return lawFlaws([]lawFlaw{
		{"refuses an owner whose deadline has passed", "owning", after(func(was work.Item, req work.Request, out *work.Outcome, err *error, now time.Time) {
			if req.Verb.ByOwner() && was.Lapsed(now) {
				out.Item, out.Changed, *err = was, false, &work.StateError{What: string(req.Verb)}
			}
		})},
		{"overwrites the result at a second completion", "completing", after(func(was work.Item, req work.Request, out *work.Outcome, err *error, _ time.Time) {
			if req.Verb == work.Complete && *err == nil && was.State == work.Done && !bytes.Equal(was.Result, req.Result) {
				out.Item.Result, out.Changed = req.Result, true
			}
		})},
		{"refuses a second completion", "completing", after(func(was work.Item, req work.Request, _ *work.Outcome, err *error, _ time.Time) {
			if req.Verb == work.Complete && was.State == work.Done {
				*err = &work.StateError{What: "complete"}
			}
		})},
		{"puts the token into the identity of effects", "completing", after(func(_ work.Item, _ work.Request, out *work.Outcome, _ *error, _ time.Time) {
			for i := range out.Effects {
				out.Effects[i].Generation = int(out.Effects[i].Token % 1000)
			}
		})},
		{"replays without a new generation", "completing", before(func(_ *work.Item, req *work.Request, _ time.Time) {
			if req.Verb == work.Replay && req.Again {
				req.Again = false
			}
		})},
		{"keeps nothing of a checkpoint", "claiming", before(func(_ *work.Item, req *work.Request, _ time.Time) { req.State = nil })},
		{"retries at once", "failing", after(func(_ work.Item, req work.Request, out *work.Outcome, _ *error, now time.Time) {
			if req.Verb == work.Fail && out.Changed && out.Item.State == work.Waiting {
				out.Item.Ready = now
			}
		})},
		{"never gives up", "failing", before(func(it *work.Item, _ *work.Request, _ time.Time) { it.Limit = work.MaxTries })},
		{"counts a release as an attempt", "failing", after(func(was work.Item, req work.Request, out *work.Outcome, _ *error, _ time.Time) {
			if req.Verb == work.Release && out.Changed {
				out.Item.Attempts = was.Attempts
			}
		})},
		{"forgets why an item was given back", "failing", before(func(_ *work.Item, req *work.Request, _ time.Time) {
			if req.Verb == work.Release {
				req.Error = ""
			}
		})},
		{"does not advance the token at a requeue", "requeueing", after(func(was work.Item, req work.Request, out *work.Outcome, _ *error, _ time.Time) {
			if req.Verb == work.Requeue && out.Changed {
				out.Item.Record.Token = was.Record.Token
			}
		})},
		{"requeues without compare and swap", "requeueing", before(func(it *work.Item, req *work.Request, _ time.Time) {
			if req.Verb == work.Requeue {
				req.Token = it.Record.Token
			}
		})},
		{"requeues who is alive", "requeueing", before(func(it *work.Item, req *work.Request, now time.Time) {
			if req.Verb == work.Requeue && it.State == work.Running {
				it.Record.Deadline = now
			}
		})},
		{"requeues for ever", "requeueing", after(func(_ work.Item, req work.Request, out *work.Outcome, _ *error, _ time.Time) {
			if req.Verb == work.Requeue && out.Item.State == work.Dead {
				out.Item.State = work.Waiting
			}
		})},
		{"forgets why an item was rescued", "requeueing", after(func(was work.Item, req work.Request, out *work.Outcome, _ *error, _ time.Time) {
			if req.Verb == work.Requeue {
				out.Item.Error = was.Error
			}
		})},
		{"tries a rescued item again at once", "requeueing", after(func(_ work.Item, req work.Request, out *work.Outcome, _ *error, now time.Time) {
			if req.Verb == work.Requeue && out.Changed {
				out.Item.Ready = now
			}
		})},
		{"takes attempts away from an item that runs now", "by hand", after(func(_ work.Item, req work.Request, out *work.Outcome, _ *error, _ time.Time) {
			if req.Verb == work.RunNow && out.Changed {
				out.Item.Attempts++
			}
		})},
		{"reassigns without burning a token", "by hand", after(func(was work.Item, req work.Request, out *work.Outcome, _ *error, _ time.Time) {
			if req.Verb == work.Reassign && out.Changed && !was.Record.IsZero() {
				out.Item.Record.Token = was.Record.Token
			}
		})},
		{"drops the note", "by hand", after(func(_ work.Item, _ work.Request, out *work.Outcome, _ *error, _ time.Time) { out.Item.Record.Note = "" })},
		{"cancels what is done", "by hand", before(func(it *work.Item, req *work.Request, _ time.Time) {
			if req.Verb == work.Cancel && it.State == work.Done {
				it.State = work.Waiting
			}
		})},
		{"adds other content under the same key", "adding", before(func(it *work.Item, req *work.Request, _ time.Time) {
			if req.Verb == work.Add && !it.IsZero() {
				it.Payload = req.Payload
			}
		})},
		{"ignores idempotency keys", "batches", before(func(it *work.Item, req *work.Request, _ time.Time) {
			if req.Verb == work.Add && it.ID != req.ID {
				*it = work.Item{}
			}
		})},
		{"moves the deadline at a report", "owning", after(func(_ work.Item, req work.Request, out *work.Outcome, _ *error, now time.Time) {
			if req.Verb == work.Report && out.Changed {
				out.Item.Record.Deadline = now.Add(2 * out.Item.Record.TTL)
			}
		})},
	})
}

// claimFlaws give items to the wrong owner, or at the wrong time.
func claimFlaws() []flaw {
	see := func(change func(it *work.Item, c *work.Claim, now time.Time)) func(*ledger.Law) {
		return func(l *ledger.Law) {
			l.Grant = func(it work.Item, c work.Claim, now time.Time) (work.Item, error) {
				change(&it, &c, now)
				return work.Grant(it, c, now)
			}
		}
	}
	return lawFlaws([]lawFlaw{
		{"claims a dead item", "claiming", see(func(it *work.Item, _ *work.Claim, _ time.Time) {
			if it.State == work.Dead {
				it.State = work.Waiting
			}
		})},
		{"ignores not-before", "claiming", see(func(it *work.Item, _ *work.Claim, now time.Time) {
			if it.Ready.After(now) {
				it.Ready = now
			}
		})},
		{"ignores priority", "claiming", func(l *ledger.Law) {
			l.Turns = inOrder(func(a, b work.Item) bool {
				a.Priority, b.Priority = 0, 0
				return a.Before(b)
			})
		}},
		{"takes the newest first", "claiming", func(l *ledger.Law) {
			l.Turns = inOrder(func(a, b work.Item) bool { return b.Before(a) })
		}},
		{"takes equally old items in any order", "claiming", func(l *ledger.Law) {
			l.Turns = inOrder(func(a, b work.Item) bool {
				if a.Priority == b.Priority && a.Ready.Equal(b.Ready) {
					return a.ID[16:] < b.ID[16:] // the random half
				}
				return a.Before(b)
			})
		}},
		{"does not count attempts", "claiming", func(l *ledger.Law) {
			l.Grant = func(it work.Item, c work.Claim, now time.Time) (work.Item, error) {
				next, err := work.Grant(it, c, now)
				next.Attempts = it.Attempts
				return next, err
			}
		}},
		{"does not advance the token at a claim", "claiming", func(l *ledger.Law) {
			l.Grant = func(it work.Item, c work.Claim, now time.Time) (work.Item, error) {
				next, err := work.Grant(it, c, now)
				if err == nil && it.Record.Token > 0 {
					next.Record.Token = it.Record.Token
				}
				return next, err
			}
		}},
		{"grants what runs", "races", see(func(it *work.Item, _ *work.Claim, _ time.Time) {
			if it.State == work.Running {
				it.State, it.Record = work.Waiting, tenure.Record{}
			}
		})},
		{"gives an item to another than the one it is reserved for", "by hand", see(func(it *work.Item, c *work.Claim, _ time.Time) {
			if it.Record.State == tenure.Reserved {
				it.Record.Owner = c.Owner
			}
		})},
		{"grants a secret again", "claiming", see(func(it *work.Item, _ *work.Claim, _ time.Time) {
			for i := range it.Record.History {
				it.Record.History[i].Grant = "ffffffffffffffffffffffffffffffff"
			}
		})},
	})
}

// effectFlaws are flaws of the outbox.
func effectFlaws() []flaw {
	return lawFlaws([]lawFlaw{
		{"lets an old dispatcher take", "outbox", func(l *ledger.Law) {
			l.Admit = func(q work.Taking, mark fence.Mark, now time.Time) (fence.Mark, *work.Refusal, error) {
				next, refusal, err := q.Admit(mark, now)
				if errors.Is(err, work.ErrStale) {
					return mark, nil, nil
				}
				return next, refusal, err
			}
		}},
		{"lets an old dispatcher settle", "outbox", func(l *ledger.Law) {
			l.Settle = func(e work.Effect, _ fence.Mark, s work.Settlement, now time.Time) (work.EffectOutcome, error) {
				return work.Settle(e, fence.Mark{}, s, now)
			}
		}},
		{"says that what was taken is still pending", "outbox", func(l *ledger.Law) {
			l.Take = func(e work.Effect, q work.Taking, now time.Time) work.Effect {
				e = work.Take(e, q, now)
				e.State = work.Pending
				return e
			}
		}},
		{"takes what is not due", "outbox", func(l *ledger.Law) {
			l.Takes = func(q work.Taking, e work.Effect, now time.Time) bool {
				e.Ready = now
				return q.Takes(e, now)
			}
		}},
		{"lets an effect that waits be overtaken", "outbox", func(l *ledger.Law) {
			l.Next = func(q work.Taking, all iter.Seq[work.Effect], now time.Time) (work.Effect, bool) {
				return q.Next(func(yield func(work.Effect) bool) {
					for e := range all {
						if e.Ready.After(now) {
							continue
						}
						if !yield(e) {
							return
						}
					}
				}, now)
			}
		}},
		{"takes the first again while a later one is under way", "outbox", func(l *ledger.Law) {
			l.Next = func(q work.Taking, all iter.Seq[work.Effect], now time.Time) (first work.Effect, ok bool) {
				for e := range all {
					open := e.State == work.Pending || e.State == work.Unknown
					if open && slices.Contains(q.To, e.To) && (first.IsZero() || e.Precedes(first)) {
						first = e
					}
				}
				return first, q.Limit > 0 && q.Takes(first, now)
			}
		}},
		{"takes a second while the first is under way", "outbox", func(l *ledger.Law) {
			l.Next = func(q work.Taking, all iter.Seq[work.Effect], now time.Time) (work.Effect, bool) {
				return q.Next(func(yield func(work.Effect) bool) {
					for e := range all {
						if e.State == work.Unknown {
							continue
						}
						if !yield(e) {
							return
						}
					}
				}, now)
			}
		}},
		{"settles a delivery that is not the newest", "outbox", func(l *ledger.Law) {
			l.Settle = func(e work.Effect, mark fence.Mark, s work.Settlement, now time.Time) (work.EffectOutcome, error) {
				s.Attempt = e.Attempts
				return work.Settle(e, mark, s, now)
			}
		}},
		{"un-sends what was sent", "outbox", func(l *ledger.Law) {
			l.Settle = func(e work.Effect, mark fence.Mark, s work.Settlement, now time.Time) (work.EffectOutcome, error) {
				if e.State == work.Sent {
					e.State = work.Unknown
				}
				return work.Settle(e, mark, s, now)
			}
		}},
	})
}

// keepingFlaws are about pruning, rollbacks, wake-ups and stored effects.
func keepingFlaws() []flaw {
	return lawFlaws([]lawFlaw{
		{"forgets items whose effects are pending", "pruning", func(l *ledger.Law) {
			l.Forget = func(r work.Retention, it work.Item, _ []work.Effect, now time.Time) bool { return r.Forgets(it, now) }
		}},
		{"forgets what is live", "pruning", func(l *ledger.Law) {
			l.Forget = func(work.Retention, work.Item, []work.Effect, time.Time) bool { return true }
		}},
		{"counts what was rolled back", "transactions", func(l *ledger.Law) { l.Commit = func(error) bool { return true } }},
		{"wakes nobody", "waking", func(l *ledger.Law) { l.Wakes = false }},
		{"overwrites an effect that is there", "completing", func(l *ledger.Law) {
			l.Apply = func(it work.Item, req work.Request, now time.Time) (work.Outcome, error) {
				out, err := work.Apply(it, req, now)
				if req.Verb == work.Complete && err == nil && !out.Changed && len(req.Effects) > 0 {
					m := req.Effects[0]
					out.Effects = []work.Effect{{EffectID: work.EffectID{Item: it.ID, Name: m.Name, Generation: it.Generation}, Queue: it.Queue, To: "elsewhere", State: work.Pending, Ready: now, Created: now}}
				}
				return out, err
			}
			l.Emit = func(there map[work.EffectID]work.Effect, e work.Effect) { there[e.EffectID] = e }
		}},
	})
}

// handleFlaws are outside the law: in handles, batches and hints.
func handleFlaws() []flaw {
	return []flaw{
		{name: "lists more than was asked for", group: "reading", wrap: func(l, _ *ledger.Ledger) work.Ledger { return limitless{l} }},
		{name: "looks for what cannot be", group: "reading", wrap: func(l, _ *ledger.Ledger) work.Ledger { return lenient{l} }},
		{name: "counts what is sent as open", group: "reading", wrap: func(l, _ *ledger.Ledger) work.Ledger { return unsent{l} }},
		{name: "is slow to see that an item has stalled", group: "reading", wrap: func(l, _ *ledger.Ledger) work.Ledger { return patient{l} }},
		{name: "counts no refusals", group: "reading", wrap: func(l, _ *ledger.Ledger) work.Ledger { return uncounting{l} }},
		{name: "closes everybody's handle", group: "handles", wrap: func(l, base *ledger.Ledger) work.Ledger { return shared{base} }},
		{name: "goes on after the context has ended", group: "handles", wrap: func(l, _ *ledger.Ledger) work.Ledger { return heedless{l} }},
		{name: "settles after the context has ended", group: "handles", wrap: func(l, _ *ledger.Ledger) work.Ledger { return settling{l} }},
		{name: "settles, and then sees that the context has ended", group: "handles", wrap: func(l, _ *ledger.Ledger) work.Ledger { return tooLate{l} }},
	}
}

type limitless struct{ *ledger.Ledger }

func (l limitless) List(ctx context.Context, q work.Query) iter.Seq2[work.Item, error] {
	q.Limit = max(q.Limit, 0) * 2
	return l.Ledger.List(ctx, q)
}

type lenient struct{ *ledger.Ledger }

func (l lenient) List(ctx context.Context, q work.Query) iter.Seq2[work.Item, error] {
	if errors.Is(work.Query{Queue: q.Queue}.Check(), work.ErrInvalid) {
		return func(func(work.Item, error) bool) {}
	}
	return l.Ledger.List(ctx, q)
}

type uncounting struct{ *ledger.Ledger }

func (l uncounting) Stats(ctx context.Context, queue string) ([]work.Stats, error) {
	all, err := l.Ledger.Stats(ctx, queue)
	for i := range all {
		all[i].Refusals = 0
	}
	return all, err
}

type unsent struct{ *ledger.Ledger }

func (l unsent) Backlog(ctx context.Context, stallAfter time.Duration) (work.Backlog, error) {
	open, err := l.Ledger.Backlog(ctx, stallAfter)
	for e := range l.Effects(ctx, work.EffectQuery{States: []work.EffectState{work.Sent}}) {
		for i := range open.Destinations {
			if open.Destinations[i].To == e.To {
				open.Destinations[i].Pending++
			}
		}
	}
	return open, err
}

type patient struct{ *ledger.Ledger }

func (l patient) Backlog(ctx context.Context, stallAfter time.Duration) (work.Backlog, error) {
	return l.Ledger.Backlog(ctx, stallAfter+time.Hour)
}

type shared struct{ *ledger.Ledger }

type heedless struct{ *ledger.Ledger }

func (l heedless) Apply(_ context.Context, requests []work.Request) []work.Answer {
	return l.Ledger.Apply(context.Background(), requests)
}

type settling struct{ *ledger.Ledger }

func (l settling) Settle(_ context.Context, settlements []work.Settlement) []work.EffectAnswer {
	return l.Ledger.Settle(context.Background(), settlements)
}

type tooLate struct{ *ledger.Ledger }

func (l tooLate) Settle(ctx context.Context, settlements []work.Settlement) []work.EffectAnswer {
	settled := l.Ledger.Settle(context.Background(), settlements)
	if ctx.Err() != nil {
		return l.Ledger.Settle(ctx, settlements)
	}
	return settled
}
