package tenure_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// afterwards is a law that does something more after the real law has granted.
func afterwards(do func(rec tenure.Record, q tenure.Request, now time.Time, next *tenure.Record)) law {
	return func(rec tenure.Record, q tenure.Request, now time.Time) (tenure.Record, bool, error) {
		next, changed, err := tenure.Apply(rec, q, now)
		if err != nil || !changed {
			return next, changed, err
		}
		next = clone(next)
		do(rec, q, now, &next)
		return next, changed, nil
	}
}

// instead is a law that gives its own answer where the real law has refused.
func instead(refusal error, do law) law {
	return func(rec tenure.Record, q tenure.Request, now time.Time) (tenure.Record, bool, error) {
		next, changed, err := tenure.Apply(rec, q, now)
		if errors.Is(err, refusal) {
			return do(clone(rec), q, now)
		}
		return next, changed, err
	}
}

// dueAfter is the law, but work is due again when the n-th part of its period
// has passed since the last success.
func dueAfter(n time.Duration) law {
	return func(rec tenure.Record, q tenure.Request, now time.Time) (tenure.Record, bool, error) {
		next, changed, err := tenure.Apply(rec, q, now)
		var held *tenure.HeldError
		if !errors.As(err, &held) || held.Why != tenure.WhyPeriod || now.Before(rec.Succeeded.Add(q.Every/n)) {
			return next, changed, err
		}
		every := q.Every
		q.Every = 0
		next, changed, err = tenure.Apply(rec, q, now)
		if next.Every != every {
			next.Every, next.Grid = every, time.Time{}
		}
		return next, changed, err
	}
}

// reissue changes the token of the newest grant, everywhere in the record.
func reissue(next *tenure.Record, token fence.Token) {
	next.Token, next.History[len(next.History)-1].Token = token, token
}

// forget removes a grant from the history.
func forget(rec *tenure.Record, g fence.Grant) {
	for i := range rec.History {
		if rec.History[i].Grant == g {
			rec.History[i].Grant = secretOf("nobody").Grant()
		}
	}
	if rec.Grant == g {
		rec.Grant = secretOf("nobody").Grant()
	}
}

// brokenLaws have one fault each. Each entry says what the law does wrong, and
// how the judge's verdict must begin.
var brokenLaws = []struct {
	does, want string
	law        law
}{
	{"issues the token before again", "law 1: token", afterwards(func(rec tenure.Record, _ tenure.Request, _ time.Time, next *tenure.Record) {
		if n := len(next.History); next.Token != rec.Token && n > 1 {
			// Change the history too: otherwise Record.Check would find the
			// fault.
			reissue(next, rec.Token)
			next.History = next.History[n-1:]
		}
	})},
	{"counts down", "law 2: token", afterwards(func(rec tenure.Record, _ tenure.Request, _ time.Time, next *tenure.Record) {
		if n := len(next.History); next.Token != rec.Token && n > 1 {
			reissue(next, rec.Token-1)
			next.History = next.History[n-1:]
		}
	})},
	{"is a counter without a clock", "law 2: token", afterwards(func(rec tenure.Record, q tenure.Request, _ time.Time, next *tenure.Record) {
		if next.Token != rec.Token {
			reissue(next, max(rec.Token, q.Above)+1)
		}
	})},
	{"takes the clock for the token", "law", afterwards(func(rec tenure.Record, _ tenure.Request, now time.Time, next *tenure.Record) {
		if n := len(next.History); next.Token != rec.Token {
			reissue(next, fence.Token(now.UnixMicro()))
			next.History = next.History[n-1:]
		}
	})},
	{"ignores above", "law 2: token", func(rec tenure.Record, q tenure.Request, now time.Time) (tenure.Record, bool, error) {
		q.Above = 0
		return tenure.Apply(rec, q, now)
	}},
	{"grants a second early", "law 4: granted although its deadline", instead(tenure.ErrHeld, func(rec tenure.Record, q tenure.Request, now time.Time) (tenure.Record, bool, error) {
		early := rec
		early.Deadline = early.Deadline.Add(-time.Second)
		next, changed, err := tenure.Apply(early, q, now)
		if err != nil {
			return tenure.Apply(rec, q, now)
		}
		return next, changed, nil
	})},
	{"grants to whoever asks", "law 4: granted although its deadline", instead(tenure.ErrHeld, func(rec tenure.Record, q tenure.Request, now time.Time) (tenure.Record, bool, error) {
		rec.Deadline = now
		next, changed, err := tenure.Apply(rec, q, now)
		if err != nil {
			next = clone(rec)
		}
		return next, changed, err
	})},
	{"ignores reservations", "law 4: granted although it is reserved", func(rec tenure.Record, q tenure.Request, now time.Time) (tenure.Record, bool, error) {
		if rec.State == tenure.Reserved && q.Verb == tenure.Acquire {
			rec.Owner = q.Owner
		}
		return tenure.Apply(rec, q, now)
	}},
	{"ignores holds", "law 4: granted although it is on hold", func(rec tenure.Record, q tenure.Request, now time.Time) (tenure.Record, bool, error) {
		q.HoldFor = 0
		return tenure.Apply(rec, q, now)
	}},
	{"ignores periods", "law 4: granted although it has been done", dueAfter(1 << 60)},
	{"waits for a quarter of a period", "law 4: granted although it has been done", dueAfter(4)},
	{"begins a new grid at every success", "law 7: a release changed more", afterwards(func(_ tenure.Record, q tenure.Request, _ time.Time, next *tenure.Record) {
		if q.Verb == tenure.Release && next.Every > 0 {
			next.Grid = next.Succeeded
		}
	})},
	{"forgets the grid at a grant", "the period is", afterwards(func(rec tenure.Record, _ tenure.Request, _ time.Time, next *tenure.Record) {
		if next.Token != rec.Token {
			next.Grid = time.Time{}
		}
	})},
	{"counts half a period from the last success", "law 4: granted although it has been done", dueAfter(2)},
	{"takes failure for success", "law 7: a release changed more", func(rec tenure.Record, q tenure.Request, now time.Time) (tenure.Record, bool, error) {
		if q.Verb == tenure.Release {
			q.Failed = false
		}
		return tenure.Apply(rec, q, now)
	}},
	{"takes back time at a renewal", "law 4: a renewal took back", afterwards(func(_ tenure.Record, q tenure.Request, now time.Time, next *tenure.Record) {
		if q.Verb == tenure.Renew {
			next.Deadline = now.Add(next.TTL)
		}
	})},
	{"extends at a repeated claim", "law 7: a acquire of a known grant changed", func(rec tenure.Record, q tenure.Request, now time.Time) (tenure.Record, bool, error) {
		next, changed, err := tenure.Apply(rec, q, now)
		if q.Verb == tenure.Acquire && err == nil && !changed && next.Deadline.Before(now.Add(next.TTL)) {
			next = clone(next)
			next.Deadline = now.Add(next.TTL)
			return next, true, nil
		}
		return next, changed, err
	}},
	{"grants a secret again", "law 1: a secret was granted twice", instead(tenure.ErrNotOwned, func(rec tenure.Record, q tenure.Request, now time.Time) (tenure.Record, bool, error) {
		forgetful := clone(rec)
		if forget(&forgetful, q.Secret.Grant()); q.Verb == tenure.Acquire {
			if next, changed, err := tenure.Apply(forgetful, q, now); err == nil {
				return next, changed, nil
			}
		}
		return tenure.Apply(rec, q, now)
	})},
	{"lets anybody renew", "law 7: a wrong grant changed", instead(tenure.ErrNotOwned, func(rec tenure.Record, q tenure.Request, now time.Time) (tenure.Record, bool, error) {
		if q.Verb == tenure.Renew && rec.State == tenure.Held {
			rec.Renewed, rec.Deadline = now, now.Add(rec.TTL)
			return rec, true, nil
		}
		return tenure.Apply(rec, q, now)
	})},
	{"lets anybody release", "law 7: a wrong grant changed", instead(tenure.ErrNotOwned, func(rec tenure.Record, q tenure.Request, now time.Time) (tenure.Record, bool, error) {
		if q.Verb == tenure.Release && rec.State == tenure.Held {
			rec.State, rec.Ended, rec.Deadline = tenure.Free, tenure.EndReleased, now
			rec.History[len(rec.History)-1].Ended, rec.History[len(rec.History)-1].Finished = tenure.EndReleased, now
			return rec, true, nil
		}
		return tenure.Apply(rec, q, now)
	})},
	{"says yes to a wrong release", "law 7: a", instead(tenure.ErrNotOwned, func(rec tenure.Record, q tenure.Request, now time.Time) (tenure.Record, bool, error) {
		if q.Verb == tenure.Release && !rec.IsZero() {
			return rec, false, nil
		}
		return tenure.Apply(rec, q, now)
	})},
	{"lets a late report through", "law 7: a", instead(tenure.ErrNotOwned, func(rec tenure.Record, q tenure.Request, now time.Time) (tenure.Record, bool, error) {
		if q.Verb == tenure.Report && rec.State == tenure.Held {
			rec.Progress, rec.ProgressAt = q.Progress, now
			return rec, true, nil
		}
		return tenure.Apply(rec, q, now)
	})},
	{"renews after the deadline", "law 7: a grant whose deadline has passed", func(rec tenure.Record, q tenure.Request, now time.Time) (tenure.Record, bool, error) {
		q.Resume = q.Resume || q.Verb == tenure.Renew
		return tenure.Apply(rec, q, now)
	}},
	{"revives what was released", "law 7: a", instead(tenure.ErrNotOwned, func(rec tenure.Record, q tenure.Request, now time.Time) (tenure.Record, bool, error) {
		if q.Verb == tenure.Renew && rec.Grant == q.Secret.Grant() && rec.State == tenure.Free && rec.Ended != "" {
			rec.State, rec.Ended, rec.Renewed, rec.Deadline = tenure.Held, "", now, now.Add(rec.TTL)
			rec.History[len(rec.History)-1].Ended, rec.History[len(rec.History)-1].Finished = "", time.Time{}
			return rec, true, nil
		}
		return tenure.Apply(rec, q, now)
	})},
	{"reports and renews in one", "law 7: a report changed more", afterwards(func(_ tenure.Record, q tenure.Request, now time.Time, next *tenure.Record) {
		if q.Verb == tenure.Report {
			next.Deadline = now.Add(next.TTL)
		}
	})},
	{"lets a late checkpoint through", "law 7: a", instead(tenure.ErrNotOwned, func(rec tenure.Record, q tenure.Request, now time.Time) (tenure.Record, bool, error) {
		if q.Verb == tenure.Checkpoint && rec.State == tenure.Held {
			rec.Checkpoint, rec.ProgressAt = q.Checkpoint, now
			return rec, true, nil
		}
		return tenure.Apply(rec, q, now)
	})},
	{"forgets the checkpoint at the next grant", "the new term begins with the checkpoint", afterwards(func(rec tenure.Record, _ tenure.Request, _ time.Time, next *tenure.Record) {
		if next.Token != rec.Token {
			next.Checkpoint = ""
		}
	})},
	{"forgets the checkpoint at a failure", "law 7: a release changed more", afterwards(func(_ tenure.Record, q tenure.Request, _ time.Time, next *tenure.Record) {
		if q.Verb == tenure.Release && q.Failed {
			next.Checkpoint = ""
		}
	})},
	{"forgets the cause", "law 8", afterwards(func(_ tenure.Record, _ tenure.Request, _ time.Time, next *tenure.Record) {
		next.Cause, next.History[len(next.History)-1].Cause = "", ""
	})},
	{"calls every cause expired", "law 8: cause", afterwards(func(rec tenure.Record, q tenure.Request, _ time.Time, next *tenure.Record) {
		if next.Token != rec.Token && q.Verb == tenure.Acquire {
			next.Cause, next.History[len(next.History)-1].Cause = tenure.Expired, tenure.Expired
		}
	})},
	{"forgets the operator's note", "law 8: cause", afterwards(func(_ tenure.Record, _ tenure.Request, _ time.Time, next *tenure.Record) {
		next.Note, next.History[len(next.History)-1].Note = "", ""
	})},
	{"forgets the operator in the history", "law 8: the history", afterwards(func(_ tenure.Record, _ tenure.Request, _ time.Time, next *tenure.Record) {
		next.History[len(next.History)-1].Actor = ""
	})},
	{"keeps an operator's name for the next holder", "law 8: cause", afterwards(func(rec tenure.Record, _ tenure.Request, _ time.Time, next *tenure.Record) {
		if next.Actor == "" && rec.Actor != "" {
			next.Actor, next.Note = rec.Actor, rec.Note
		}
	})},
	{"counts reservations as terms", "1 terms are counted, there were 0", afterwards(func(rec tenure.Record, _ tenure.Request, _ time.Time, next *tenure.Record) {
		if next.Token != rec.Token && next.State == tenure.Reserved {
			next.Terms++
		}
	})},
	{"keeps a history of four", "4 transfers in the history, want 5", afterwards(func(_ tenure.Record, _ tenure.Request, _ time.Time, next *tenure.Record) {
		if len(next.History) > 4 {
			next.History = next.History[1:]
		}
	})},
	{"takes a used secret for an act that was done", "a revoke got a yes and did nothing", instead(fence.ErrInvalid, func(rec tenure.Record, q tenure.Request, now time.Time) (tenure.Record, bool, error) {
		if rec.Grant == q.Secret.Grant() && rec.Alive(now) && q.Verb == tenure.Revoke {
			return rec, false, nil
		}
		return tenure.Apply(rec, q, now)
	})},
	{"writes into what it was given", "purity", afterwards(func(rec tenure.Record, _ tenure.Request, now time.Time, _ *tenure.Record) {
		if n := len(rec.History); n > 0 {
			rec.History[n-1].Finished = now
		}
	})},
	{"notes who was refused", "a refusal changed something", instead(tenure.ErrHeld, func(rec tenure.Record, q tenure.Request, now time.Time) (tenure.Record, bool, error) {
		_, _, err := tenure.Apply(rec, q, now)
		rec.Note = q.Owner
		return rec, false, err
	})},
	{"changes in silence", "it changed something and said it did not", func(rec tenure.Record, q tenure.Request, now time.Time) (tenure.Record, bool, error) {
		next, _, err := tenure.Apply(rec, q, now)
		return next, false, err
	}},
	{"refuses everything", "a claim was refused though nothing stood in its way", func(rec tenure.Record, q tenure.Request, now time.Time) (tenure.Record, bool, error) {
		return rec, false, &tenure.NotOwnedError{Grant: q.Secret.Grant(), Record: rec, Why: tenure.WhyUnknown, Now: now}
	}},
	{"does not let the last holder resume", "the last holder could not resume", func(rec tenure.Record, q tenure.Request, now time.Time) (tenure.Record, bool, error) {
		q.Resume = false
		return tenure.Apply(rec, q, now)
	}},
	{"counts a repeated act by hand as another", "idempotence", func(rec tenure.Record, q tenure.Request, now time.Time) (tenure.Record, bool, error) {
		if q.Verb == tenure.Revoke {
			rec = clone(rec)
			forget(&rec, q.Secret.Grant())
		}
		return tenure.Apply(rec, q, now)
	}},
}

// TestTheJudgeRejectsBrokenLaws: a checker that accepts everything proves
// nothing.
func TestTheJudgeRejectsBrokenLaws(t *testing.T) {
	for _, broken := range brokenLaws {
		t.Run(broken.does, func(t *testing.T) {
			t.Parallel()
			reject(t, broken.law, tenure.Record.Droppable, broken.want)
		})
	}
}

// TestTheJudgeRejectsForgetfulStores: a store that drops a record too early
// issues its tokens again.
func TestTheJudgeRejectsForgetfulStores(t *testing.T) {
	for does, droppable := range map[string]func(tenure.Record, time.Time, time.Duration) bool{
		"looks at the deadline only": func(r tenure.Record, now time.Time, retention time.Duration) bool {
			return !now.Before(r.Deadline.Add(retention))
		},
		"drops what is free": func(r tenure.Record, now time.Time, _ time.Duration) bool { return r.StateAt(now) == tenure.Free },
	} {
		t.Run(does, func(t *testing.T) { reject(t, tenure.Apply, droppable, "law ") })
	}
}

// reject plays scenarios until the judge objects for the expected reason. It
// fails if the judge never objects, or only for other reasons.
func reject(t *testing.T, broken law, droppable func(tenure.Record, time.Time, time.Duration) bool, want string) {
	t.Helper()
	var other error
	for seed := range 100 {
		for _, steady := range []bool{true, false} {
			err := verdict(broken, droppable, scenarios(steady).Example(seed), steady)
			if err == nil {
				continue
			}
			if strings.Contains(err.Error(), ": "+want) {
				t.Logf("caught by %q: %v", strings.TrimSpace(want), err)
				return
			}
			other = err
		}
	}
	if other != nil {
		t.Errorf("it was caught, and never with %q, but with: %v", want, other)
	} else {
		t.Error("it was not caught")
	}
}
