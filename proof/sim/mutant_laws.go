package sim

import (
	"slices"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// retoken gives a new term another token.
func retoken(rec, next tenure.Record, token fence.Token) tenure.Record {
	if next.Token == rec.Token {
		return next
	}
	next.Token = token
	next.History[len(next.History)-1].Token = token
	return next
}

func noAnchor(rec tenure.Record, req tenure.Request, now time.Time) (tenure.Record, bool, error) {
	next, changed, err := tenure.Apply(rec, req, now)
	return retoken(rec, next, rec.Token+1), changed, err
}

func counterRestarts(rec tenure.Record, req tenure.Request, now time.Time) (tenure.Record, bool, error) {
	next, changed, err := tenure.Apply(rec, req, now)
	if rec.IsZero() {
		next = retoken(rec, next, 1)
	}
	return next, changed, err
}

func clockIsToken(rec tenure.Record, req tenure.Request, now time.Time) (tenure.Record, bool, error) {
	next, changed, err := tenure.Apply(rec, req, now)
	return retoken(rec, next, fence.Token(now.UnixMicro())), changed, err
}

// resurrects makes the record forget all secrets that are over.
func resurrects(rec tenure.Record, req tenure.Request, now time.Time) (tenure.Record, bool, error) {
	if req.Verb == tenure.Acquire && !rec.Alive(now) {
		rec = forgetful(rec)
	}
	return tenure.Apply(rec, req, now)
}

// forgetful returns the record with all used secrets forgotten.
func forgetful(rec tenure.Record) tenure.Record {
	rec.History = slices.Clone(rec.History)
	for i := range rec.History {
		rec.History[i].Grant = "00000000000000000000000000000000"
	}
	rec.Grant = "00000000000000000000000000000000"
	return rec
}

// earlyGrant takes a lease for over in its last second.
func earlyGrant(rec tenure.Record, req tenure.Request, now time.Time) (tenure.Record, bool, error) {
	if req.Verb == tenure.Acquire && rec.Grant != req.Secret.Grant() &&
		rec.Alive(now) && rec.Deadline.Sub(now) < time.Second {
		rec.Deadline = now
	}
	return tenure.Apply(rec, req, now)
}

func anybodyReleases(rec tenure.Record, req tenure.Request, now time.Time) (tenure.Record, bool, error) {
	if req.Verb != tenure.Release || !rec.Alive(now) || rec.Grant == req.Secret.Grant() {
		return tenure.Apply(rec, req, now)
	}
	rec.State, rec.Ended, rec.Deadline = tenure.Free, tenure.EndReleased, tenure.Time(now)
	return rec, true, nil
}

func anybodyRenews(rec tenure.Record, req tenure.Request, now time.Time) (tenure.Record, bool, error) {
	if req.Verb != tenure.Renew || !rec.Alive(now) || rec.Grant == req.Secret.Grant() {
		return tenure.Apply(rec, req, now)
	}
	rec.Renewed, rec.Deadline = tenure.Time(now), tenure.Time(now).Add(rec.TTL)
	return rec, true, nil
}

func forgetsCheckpoints(rec tenure.Record, req tenure.Request, now time.Time) (tenure.Record, bool, error) {
	next, changed, err := tenure.Apply(rec, req, now)
	if next.Token != rec.Token {
		next.Checkpoint = ""
	}
	return next, changed, err
}

func renewsTheDead(rec tenure.Record, req tenure.Request, now time.Time) (tenure.Record, bool, error) {
	req.Resume = req.Resume || req.Verb == tenure.Renew
	return tenure.Apply(rec, req, now)
}

func takeoverKeepsToken(rec tenure.Record, req tenure.Request, now time.Time) (tenure.Record, bool, error) {
	next, changed, err := tenure.Apply(rec, req, now)
	if req.Verb == tenure.Takeover && !rec.IsZero() {
		next = retoken(rec, next, rec.Token)
	}
	return next, changed, err
}

func revokeKeepsToken(rec tenure.Record, req tenure.Request, now time.Time) (tenure.Record, bool, error) {
	if req.Verb == tenure.Revoke && rec.Alive(now) {
		rec.State, rec.Ended, rec.Deadline = tenure.Free, tenure.EndTakenOver, tenure.Time(now)
		return rec, true, nil
	}
	return tenure.Apply(rec, req, now)
}

func namelessTakeover(rec tenure.Record, req tenure.Request, now time.Time) (tenure.Record, bool, error) {
	next, changed, err := tenure.Apply(rec, req, now)
	if changed && req.Verb.ByHand() {
		next.Actor = ""
	}
	return next, changed, err
}

func causeless(rec tenure.Record, req tenure.Request, now time.Time) (tenure.Record, bool, error) {
	next, changed, err := tenure.Apply(rec, req, now)
	if changed && next.Token != rec.Token {
		next.Cause = tenure.First
		next.History[len(next.History)-1].Cause = tenure.First
	}
	return next, changed, err
}

// admits returns the mark after a stamp that is admitted without any check.
func admits(m fence.Mark, s fence.Stamp) (fence.Mark, error) {
	if s.Token >= m.Token {
		return s.Mark(), nil
	}
	return m, nil
}

func equalFromAny(m fence.Mark, s fence.Stamp) (fence.Mark, error) {
	if s.Key == m.Key && s.Token == m.Token && s.Grant != m.Grant {
		return admits(m, s)
	}
	return m.Admit(s)
}

func equalRefused(m fence.Mark, s fence.Stamp) (fence.Mark, error) {
	if s.Key == m.Key && s.Token == m.Token {
		return m, &fence.StaleError{Presented: s, Newest: m}
	}
	return m.Admit(s)
}

func olderAdmitted(m fence.Mark, s fence.Stamp) (fence.Mark, error) {
	if s.Key == m.Key && s.Token < m.Token && m.Token-s.Token < fence.Token(time.Minute/time.Microsecond) {
		return admits(m, s)
	}
	return m.Admit(s)
}

func repeatsAdmitted(m fence.Mark, s fence.Stamp) (fence.Mark, error) {
	if s.Key == m.Key && s.Token == m.Token && s.Grant == m.Grant {
		return m, nil
	}
	return m.Admit(s)
}

func anyKey(m fence.Mark, s fence.Stamp) (fence.Mark, error) {
	if m.IsZero() || s.Key == m.Key {
		return m.Admit(s)
	}
	return admits(m, s)
}
