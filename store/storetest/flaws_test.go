package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// flaw is one way to break a store. The suite must notice it in the checks of
// its group.
type flaw struct {
	name  string
	group string
	spoil func(p *plain)
}

// lawful has the changes of a flaw in the law: before the decision to the
// record and the request, and after it to the new record.
type lawful struct {
	before func(rec *tenure.Record, req *tenure.Request, now time.Time)
	after  func(rec tenure.Record, next *tenure.Record, req tenure.Request, now time.Time)
}

// law replaces the law by one with a flaw.
func law(l lawful) func(*plain) {
	return func(p *plain) {
		p.law = func(rec tenure.Record, req tenure.Request, now time.Time) (tenure.Record, bool, error) {
			seen := copied(rec)
			if l.before != nil {
				l.before(&seen, &req, now)
			}
			next, changed, err := tenure.Apply(seen, req, now)
			if err == nil && l.after != nil {
				l.after(rec, &next, req, now)
			}
			return next, changed, err
		}
	}
}

// renamed changes the token of the newest term.
func renamed(next *tenure.Record, token fence.Token) {
	next.Token = token
	next.History[len(next.History)-1].Token = token
}

// pretend makes the request's grant the current one in the record.
func pretend(rec *tenure.Record, req *tenure.Request, verbs ...tenure.Verb) {
	if slices.Contains(verbs, req.Verb) && !rec.IsZero() {
		rec.Grant = req.Secret.Grant()
		rec.History[len(rec.History)-1].Grant = rec.Grant
	}
}

func flaws() []flaw {
	return slices.Concat(lawFlaws(), tokenFlaws(), batchFlaws(), keepingFlaws(), otherFlaws())
}

// lawFlaws decide differently from the law.
func lawFlaws() []flaw {
	type rec = *tenure.Record
	type req = *tenure.Request
	return []flaw{
		{"renews for whoever asks", "transitions", law(lawful{before: func(r rec, q req, _ time.Time) { pretend(r, q, tenure.Renew) }})},
		{"lets anybody release", "transitions", law(lawful{before: func(r rec, q req, _ time.Time) { pretend(r, q, tenure.Release) }})},
		{"lets anybody report", "transitions", law(lawful{before: func(r rec, q req, _ time.Time) { pretend(r, q, tenure.Report) }})},
		{"lets anybody save a checkpoint", "checkpoints", law(lawful{before: func(r rec, q req, _ time.Time) { pretend(r, q, tenure.Checkpoint) }})},
		{"forgets the checkpoint at the next grant", "checkpoints", law(lawful{after: func(before tenure.Record, n rec, _ tenure.Request, _ time.Time) {
			if n.Token != before.Token {
				n.Checkpoint = ""
			}
		}})},
		{"forgets the checkpoint of a failed term", "checkpoints", law(lawful{after: func(_ tenure.Record, n rec, q tenure.Request, _ time.Time) {
			if q.Failed {
				n.Checkpoint = ""
			}
		}})},
		{"keeps a checkpoint as text", "checkpoints", func(p *plain) {
			p.keep = func(rec tenure.Record) tenure.Record {
				rec.Checkpoint = strings.ToValidUTF8(rec.Checkpoint, "?")
				return rec
			}
		}},
		{"lists records without their checkpoint", "checkpoints", func(p *plain) { p.show = func(rec tenure.Record) tenure.Record { rec.Checkpoint = ""; return rec } }},
		{"renews what has expired", "repeats", law(lawful{before: func(_ rec, q req, _ time.Time) { q.Resume = q.Resume || q.Verb == tenure.Renew }})},
		{"never resumes", "repeats", law(lawful{before: func(_ rec, q req, _ time.Time) { q.Resume = false }})},
		{"grants a secret again after its release", "repeats", law(lawful{before: func(r rec, q req, _ time.Time) {
			if q.Verb == tenure.Acquire && r.State == tenure.Free {
				for i := range r.History {
					r.History[i].Grant = "ffffffffffffffffffffffffffffffff"
				}
			}
		}})},
		{"remembers only the newest secret", "ambiguity", law(lawful{before: func(r rec, _ req, _ time.Time) {
			for i := range len(r.History) - 1 {
				r.History[i].Grant = "ffffffffffffffffffffffffffffffff"
			}
		}})},
		{"moves the deadline of a repeated acquire", "repeats", law(lawful{after: func(_ tenure.Record, n rec, q tenure.Request, now time.Time) {
			if q.Verb == tenure.Acquire {
				n.Deadline = now.Add(q.TTL)
			}
		}})},
		{"grants a little before the deadline", "deadlines", law(lawful{before: func(r rec, q req, _ time.Time) {
			if q.Verb == tenure.Acquire && r.Grant != q.Secret.Grant() && r.State == tenure.Held {
				r.Deadline = r.Deadline.Add(-time.Millisecond)
			}
		}})},
		{"moves the deadline at a report", "deadlines", law(lawful{after: func(_ tenure.Record, n rec, q tenure.Request, now time.Time) {
			if q.Verb == tenure.Report {
				n.Deadline = now.Add(n.TTL)
			}
		}})},
		{"counts the deadline in whole seconds", "deadlines", law(lawful{after: func(_ tenure.Record, n rec, _ tenure.Request, _ time.Time) {
			n.Deadline = n.Deadline.Truncate(time.Second)
		}})},
		{"ignores reservations", "reservations", law(lawful{before: func(r rec, q req, _ time.Time) {
			if r.State == tenure.Reserved && q.Verb == tenure.Acquire {
				r.Owner = q.Owner
			}
		}})},
		{"never ends a reservation", "reservations", law(lawful{before: func(r rec, _ req, now time.Time) {
			if r.State == tenure.Reserved && !now.Before(r.Deadline) {
				r.Deadline = now.Add(time.Hour)
			}
		}})},
		{"ignores the period", "periods", law(lawful{before: func(_ rec, q req, _ time.Time) {
			if q.Verb == tenure.Acquire {
				q.Every = 0
			}
		}})},
		{"waits for the whole period", "periods", law(lawful{before: func(r rec, q req, _ time.Time) {
			if q.Verb == tenure.Acquire && !r.Succeeded.IsZero() {
				r.Succeeded = r.Succeeded.Add(q.Every / 2)
			}
		}})},
		{"counts half a period from the last success", "periods", law(lawful{before: func(r rec, q req, _ time.Time) {
			if q.Verb == tenure.Acquire {
				r.Grid = time.Time{}
			}
		}})},
		{"forgets work that is done once", "periods", law(lawful{before: func(_ rec, q req, _ time.Time) {
			q.Every = min(q.Every, tenure.MaxPeriod)
		}})},
		{"counts a failure as done", "periods", law(lawful{after: func(before tenure.Record, n rec, q tenure.Request, _ time.Time) {
			if q.Verb == tenure.Release {
				n.Succeeded = before.Acquired
			}
		}})},
		{"ignores the hold", "periods", law(lawful{before: func(r rec, q req, _ time.Time) {
			if q.Verb == tenure.Acquire {
				r.HoldUntil = time.Time{}
			}
		}})},
		{"holds after a failure", "periods", law(lawful{after: func(before tenure.Record, n rec, q tenure.Request, _ time.Time) {
			if q.Verb == tenure.Release {
				n.HoldUntil, n.Ended = before.HoldUntil, tenure.EndReleased
			}
		}})},
		{"gives every term the cause released", "history", law(lawful{after: func(_ tenure.Record, n rec, _ tenure.Request, _ time.Time) {
			n.Cause = tenure.Released
			n.History[len(n.History)-1].Cause = tenure.Released
		}})},
		{"carries out what is invalid", "transitions", func(p *plain) {
			p.law = func(rec tenure.Record, req tenure.Request, now time.Time) (tenure.Record, bool, error) {
				if req.Verb == tenure.Takeover && strings.TrimSpace(req.Note) == "" {
					req.Note = "none given"
				}
				return tenure.Apply(rec, req, now)
			}
		}},
		{"does what it refuses", "transitions", func(p *plain) {
			p.law = func(rec tenure.Record, req tenure.Request, now time.Time) (tenure.Record, bool, error) {
				next, changed, err := tenure.Apply(rec, req, now)
				if errors.Is(err, tenure.ErrNotOwned) && req.Verb == tenure.Release && rec.State == tenure.Held {
					rec.State, rec.Ended, rec.Deadline = tenure.Free, tenure.EndReleased, now
					p.records[rec.Key] = rec
				}
				return next, changed, err
			}
		}},
	}
}

// tokenFlaws give out wrong tokens.
func tokenFlaws() []flaw {
	grants := func(before tenure.Record, next *tenure.Record) bool { return before.Grant != next.Grant }
	return []flaw{
		{"uses a token again after a release", "tokens", law(lawful{after: func(before tenure.Record, next *tenure.Record, _ tenure.Request, _ time.Time) {
			if grants(before, next) && before.State == tenure.Free && !before.IsZero() {
				renamed(next, before.Token)
			}
		}})},
		{"counts tokens without the clock", "tokens", law(lawful{after: func(before tenure.Record, next *tenure.Record, _ tenure.Request, _ time.Time) {
			if grants(before, next) {
				renamed(next, before.Token+1)
			}
		}})},
		{"takes tokens from the clock alone", "tokens", law(lawful{after: func(before tenure.Record, next *tenure.Record, _ tenure.Request, now time.Time) {
			if grants(before, next) {
				renamed(next, fence.Token(now.UnixMicro()))
			}
		}})},
		{"ignores above", "tokens", law(lawful{before: func(_ *tenure.Record, req *tenure.Request, _ time.Time) { req.Above = 0 }})},
		{"burns no token at a takeover", "repeats", law(lawful{after: func(before tenure.Record, next *tenure.Record, req tenure.Request, _ time.Time) {
			if grants(before, next) && req.Verb.ByHand() && !before.IsZero() {
				renamed(next, before.Token)
			}
		}})},
		{"burns a second token when a takeover is repeated", "ambiguity", law(lawful{after: func(before tenure.Record, next *tenure.Record, req tenure.Request, _ time.Time) {
			if !grants(before, next) && req.Verb.ByHand() {
				renamed(next, before.Token+1)
			}
		}})},
		{"keeps tokens to fifteen digits", "tokens", func(p *plain) {
			p.keep = func(rec tenure.Record) tenure.Record {
				rec.Token -= rec.Token % 10
				return rec
			}
		}},
	}
}

// batchFlaws carry out batches wrongly.
func batchFlaws() []flaw {
	each := func(st store.Store, requests []tenure.Request) []store.Answer {
		var answers []store.Answer
		for _, req := range requests {
			answers = append(answers, st.(*handle).one(req))
		}
		return answers
	}
	type list = []tenure.Request
	return []flaw{
		{"answers in another order", "batch", func(p *plain) {
			p.carry = func(st store.Store, requests list) []store.Answer {
				answers := each(st, requests)
				slices.SortStableFunc(answers, func(a, b store.Answer) int { return strings.Compare(a.Record.Key, b.Record.Key) })
				return answers
			}
		}},
		{"answers only what succeeded", "batch", func(p *plain) {
			p.carry = func(st store.Store, requests list) []store.Answer {
				return slices.DeleteFunc(each(st, requests), func(a store.Answer) bool { return a.Err != nil })
			}
		}},
		{"stops a batch at the first refusal", "batch", func(p *plain) {
			p.carry = func(st store.Store, requests list) []store.Answer {
				for i, req := range requests {
					if a := st.(*handle).one(req); a.Err != nil {
						return append(each(st, requests[:i]), slices.Repeat([]store.Answer{a}, len(requests)-i)...)
					}
				}
				return each(st, requests)
			}
		}},
		{"refuses a batch for one invalid request", "batch", func(p *plain) {
			p.carry = func(st store.Store, requests list) []store.Answer {
				for _, req := range requests {
					if err := req.Check(); err != nil {
						return slices.Repeat([]store.Answer{{Err: err}}, len(requests))
					}
				}
				return each(st, requests)
			}
		}},
		{"carries out releases first", "batch", func(p *plain) {
			p.carry = func(st store.Store, requests list) []store.Answer {
				answers := make([]store.Answer, len(requests))
				for _, first := range []bool{true, false} {
					for i, req := range requests {
						if (req.Verb == tenure.Release) == first {
							answers[i] = st.(*handle).one(req)
						}
					}
				}
				return answers
			}
		}},
		{"takes 256 requests and forgets the rest", "batch", func(p *plain) {
			p.carry = func(st store.Store, requests list) []store.Answer {
				answers := each(st, requests[:min(256, len(requests))])
				return append(answers, make([]store.Answer, len(requests)-len(answers))...)
			}
		}},
		{"changes the caller's requests", "batch", func(p *plain) {
			p.carry = func(st store.Store, requests list) []store.Answer {
				answers := each(st, requests)
				for i := range requests {
					requests[i].Secret = ""
				}
				return answers
			}
		}},
		{"sorts the caller's guards", "batch", func(p *plain) {
			p.carry = func(st store.Store, requests list) []store.Answer {
				for _, req := range requests {
					slices.Sort(req.Guards)
				}
				return each(st, requests)
			}
		}},
	}
}

// keepingFlaws keep other records than they should.
func keepingFlaws() []flaw {
	keep := func(change func(rec *tenure.Record)) func(*plain) {
		return func(p *plain) {
			p.keep = func(rec tenure.Record) tenure.Record {
				rec = copied(rec)
				change(&rec)
				return rec
			}
		}
	}
	return []flaw{
		{"forgets the history", "history", keep(func(rec *tenure.Record) { rec.History = rec.History[len(rec.History)-1:] })},
		{"keeps the history from the other end", "history", keep(func(rec *tenure.Record) {
			if len(rec.History) == tenure.HistoryLen {
				slices.Reverse(rec.History)
			}
		})},
		{"forgets the guards", "facts", keep(func(rec *tenure.Record) { rec.Guards = nil })},
		{"cuts long texts", "facts", keep(func(rec *tenure.Record) { rec.Progress = rec.Progress[:min(len(rec.Progress), 255)] })},
		{"keeps times in a local zone", "facts", keep(func(rec *tenure.Record) { rec.Deadline = rec.Deadline.In(time.FixedZone("here", 3600)) })},
		{"keeps times in milliseconds", "facts", keep(func(rec *tenure.Record) { rec.TTL = rec.TTL.Truncate(time.Millisecond) })},
		{"gives out what it keeps", "facts", func(p *plain) { p.show = func(rec tenure.Record) tenure.Record { return rec } }},
		{"takes keys of any case for the same", "keys", func(p *plain) { p.name = strings.ToLower }},
		{"takes no notice of space around keys", "keys", func(p *plain) { p.name = strings.TrimSpace }},
		{"takes 255 bytes of a key", "keys", func(p *plain) { p.name = func(key string) string { return key[:min(len(key), 255)] } }},
		{"never drops a record", "retention", func(p *plain) { p.due = func(tenure.Record, time.Time, time.Duration) bool { return false } }},
		{"drops by age alone", "retention", func(p *plain) {
			p.due = func(rec tenure.Record, now time.Time, retention time.Duration) bool {
				return !now.Before(rec.Acquired.Add(retention))
			}
		}},
		{"drops what is free at once", "retention", func(p *plain) {
			p.due = func(rec tenure.Record, now time.Time, _ time.Duration) bool { return !now.Before(rec.Quiet()) }
		}},
		{"drops work that is done once", "retention", func(p *plain) {
			p.due = func(rec tenure.Record, now time.Time, retention time.Duration) bool {
				if rec.Every == tenure.Once {
					rec.Every = 0
				}
				return rec.Droppable(now, retention)
			}
		}},
		{"drops what was taken since it looked", "retention", func(p *plain) {
			p.sweep = func(p *plain, now time.Time, retention time.Duration) int {
				p.mu.Lock()
				var old []string
				for key, rec := range p.records {
					if p.due(rec, now, retention) {
						old = append(old, key)
					}
				}
				p.mu.Unlock()
				time.Sleep(time.Millisecond) // like a round trip
				p.mu.Lock()
				defer p.mu.Unlock()
				for _, key := range old {
					delete(p.records, key)
				}
				return len(old)
			}
		}},
	}
}

// otherFlaws are flaws of all other kinds.
func otherFlaws() []flaw {
	return []flaw{
		{"checks, then sets", "contention", func(p *plain) { p.gap = func() { time.Sleep(time.Microsecond) } }},
		{"answers with errors of its own", "transitions", func(p *plain) {
			p.answer = func(a store.Answer) store.Answer {
				if a.Err != nil && !errors.Is(a.Err, fence.ErrInvalid) {
					a.Err = fmt.Errorf("lease busy: %s", a.Err.Error())
				}
				return a
			}
		}},
		{"refuses without the facts", "transitions", func(p *plain) {
			p.answer = func(a store.Answer) store.Answer {
				var held *tenure.HeldError
				if errors.As(a.Err, &held) {
					a.Err = &tenure.HeldError{Why: held.Why}
				}
				return a
			}
		}},
		{"takes an underscore for any character", "listing", func(p *plain) { p.match = wild }},
		{"lists whole segments only", "listing", func(p *plain) {
			p.match = func(key, prefix string) bool {
				return strings.HasPrefix(key+"/", strings.TrimSuffix(prefix, "/")+"/") || prefix == ""
			}
		}},
		{"lists in any order", "listing", func(p *plain) {
			p.order = func(records []tenure.Record) {
				rand.Shuffle(len(records), func(i, j int) { records[i], records[j] = records[j], records[i] })
			}
		}},
		{"lists in the order of a dictionary", "listing", func(p *plain) {
			p.order = func(records []tenure.Record) {
				slices.SortFunc(records, func(a, b tenure.Record) int {
					return strings.Compare(strings.ToLower(a.Key)+a.Key, strings.ToLower(b.Key)+b.Key)
				})
			}
		}},
		{"lets go of everything when it is closed", "handles", func(p *plain) {
			p.closes = func(p *plain) {
				p.mu.Lock()
				defer p.mu.Unlock()
				for key, rec := range p.records {
					rec.Deadline = rec.Acquired
					p.records[key] = rec
				}
			}
		}},
		{"shows a renewal only to the client that made it", "handles", func(p *plain) {
			fresh := p.reads
			p.reads = func(h *handle, key string) tenure.Record {
				rec := fresh(h, key)
				if h.nth > 1 && rec.State == tenure.Held && rec.Renewed.After(rec.Acquired) {
					rec.Renewed, rec.Deadline = rec.Acquired, rec.Acquired.Add(rec.TTL)
				}
				return rec
			}
		}},
		{"remembers what it has read", "handles", func(p *plain) {
			fresh := p.reads
			p.reads = func(h *handle, key string) tenure.Record {
				old, ok := h.seen[key]
				if rec := fresh(h, key); !ok || old.Token != rec.Token {
					h.seen[key], old = rec, rec
				}
				return old
			}
		}},
		{"goes by its clients' clocks", "deadlines", func(p *plain) {
			p.skew = func(nth int) time.Duration { return time.Duration(nth%2) * time.Second }
		}},
		{"wakes nobody", "watch", func(p *plain) { p.wake = func(chan struct{}) {} }},
		{"keeps a key for one that has left", "watch", func(p *plain) {
			waiting := map[string]tenure.Request{}
			p.law = func(rec tenure.Record, req tenure.Request, now time.Time) (tenure.Record, bool, error) {
				next, changed, err := tenure.Apply(rec, req, now)
				switch {
				case req.Verb == tenure.Acquire && errors.Is(err, tenure.ErrHeld):
					waiting[req.Key] = req
				case req.Verb == tenure.Release && changed && waiting[req.Key].Secret != "":
					next, _, _ = tenure.Apply(next, waiting[req.Key], now)
					delete(waiting, req.Key)
				}
				return next, changed, err
			}
		}},
		{"never ends a watch", "watch", func(p *plain) { p.unlook = func(chan struct{}) {} }},
		{"announces no act", "acts", func(p *plain) { p.tell = func(*plain, *handle, tenure.Request) {} }},
		{"announces takeovers alone", "acts", func(p *plain) {
			p.tell = func(p *plain, _ *handle, req tenure.Request) {
				if req.Verb == tenure.Takeover {
					p.acts.Tell(req.Key)
				}
			}
		}},
		{"announces everything", "acts", func(p *plain) {
			p.tell = func(p *plain, _ *handle, req tenure.Request) { p.acts.Tell(req.Key) }
		}},
		{"never ends its announcements", "acts", func(p *plain) { p.unhear = context.WithoutCancel }},
		{"takes an ended context for a refusal", "contexts", func(p *plain) {
			p.ended = func(n int, _ error) []store.Answer {
				return slices.Repeat([]store.Answer{{Err: &tenure.NotOwnedError{Why: tenure.WhyExpired}}}, n)
			}
		}},
		{"does not say that the context has ended", "contexts", func(p *plain) {
			p.ended = func(n int, _ error) []store.Answer { return store.Failed(n, errors.New("timeout")) }
		}},
		{"does not answer when the context has ended", "contexts", func(p *plain) {
			p.ended = func(int, error) []store.Answer { return nil }
		}},
	}
}

// wild matches like SQL's LIKE: an underscore stands for any character.
func wild(key, prefix string) bool {
	for i := range len(prefix) {
		if i >= len(key) || (prefix[i] != '_' && prefix[i] != key[i]) {
			return false
		}
	}
	return true
}
