package redis

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// ErrDamaged is matched by the error about a record that cannot be one of the law's. Nothing is decided from it and nothing is written over it.
var ErrDamaged = errors.New("damaged record")

// answer makes what the script says of a request into what the law says of it.
func answer(req tenure.Request, now time.Time, outcome, text string) store.Answer {
	rec, err := parseRecord(req.Key, text)
	if outcome == "damaged" || err != nil {
		return store.Answer{Err: store.Unknown(damaged(req.Key, err))}
	}
	if outcome == string(tenure.WhyTakenOver) { // with its history, which says who did
		rec.History = append(rec.History, newest(rec))
	}
	a := store.Answer{Record: rec, Now: now}
	held := func(until time.Time) error {
		return &tenure.HeldError{Record: rec, Why: tenure.Why(outcome), Until: until, Now: now}
	}
	switch outcome {
	case "":
	case string(tenure.WhyHeld), string(tenure.WhyReserved):
		a.Err = held(rec.Deadline)
	case string(tenure.WhyHold):
		a.Err = held(rec.HoldUntil)
	case string(tenure.WhyPeriod):
		a.Err = held(rec.Succeeded.Add(req.Every.Truncate(time.Microsecond) / 2))
	case "used":
		a.Err = fmt.Errorf("%w secret: it has been used for another request on %q; make a new one for each", fence.ErrInvalid, req.Key)
	case "tokens":
		a.Err = fmt.Errorf("%w token: tokens end at %d and the store's clock, now %s, has been far ahead; delete the key's record from the store", fence.ErrInvalid, fence.MaxToken, now.Format(time.RFC3339))
	default:
		a.Err = &tenure.NotOwnedError{Grant: req.Secret.Grant(), Record: rec, Why: tenure.Why(outcome), Now: now}
	}
	return a
}

func damaged(key string, err error) error {
	why := "it was not written by this program"
	if err != nil {
		why = err.Error()
	}
	return fmt.Errorf("%w: key %q: %s; delete it from Redis if the key may be forgotten", ErrDamaged, key, why)
}

// The values of a record and of a term, as apply.lua writes them.
const (
	recordLen = 23
	termLen   = 11
)

// parseRecord reads a record and the terms before its newest, if they are there.
func parseRecord(key, text string) (tenure.Record, error) {
	if text == "" {
		return tenure.Record{}, nil
	}
	p := &packed{rest: text}
	p.array(recordLen)
	p.number() // when it leaves
	rec := tenure.Record{
		Key:       key,
		Token:     fence.Token(p.number()),
		Grant:     fence.Grant(p.text()),
		State:     tenure.State(p.text()),
		Cause:     tenure.Cause(p.text()),
		Ended:     tenure.End(p.text()),
		Acquired:  p.time(),
		Renewed:   p.time(),
		Deadline:  p.time(),
		TTL:       p.duration(),
		Every:     p.duration(),
		Succeeded: p.time(),
		HoldUntil: p.time(),
		Terms:     p.number(),
	}
	p.number() // transfers
	rec.Owner, rec.Instance, rec.Actor, rec.Note, rec.Progress = p.text(), p.text(), p.text(), p.text(), p.text()
	rec.ProgressAt = p.time()
	if guards := p.text(); guards != "" {
		rec.Guards = strings.Split(guards, "\t")
	}
	p.number() // when it expires
	for p.rest != "" {
		p.array(termLen)
		rec.History = append(rec.History, tenure.Term{
			Token: fence.Token(p.number()), Grant: fence.Grant(p.text()), Owner: p.text(), Instance: p.text(), State: tenure.State(p.text()),
			Cause: tenure.Cause(p.text()), Actor: p.text(), Note: p.text(), Acquired: p.time(), Finished: p.time(), Ended: tenure.End(p.text()),
		})
	}
	if p.err != nil {
		return tenure.Record{}, p.err
	}
	slices.SortFunc(rec.History, func(a, b tenure.Term) int { return cmp.Compare(a.Token, b.Token) })
	return rec, nil
}

// newest is the record's own term.
func newest(rec tenure.Record) tenure.Term {
	t := tenure.Term{
		Token: rec.Token, Grant: rec.Grant, Owner: rec.Owner, Instance: rec.Instance, State: rec.State,
		Cause: rec.Cause, Actor: rec.Actor, Note: rec.Note, Acquired: rec.Acquired,
	}
	if rec.Ended != "" {
		t.State, t.Finished, t.Ended = tenure.Held, rec.Deadline, rec.Ended
	}
	return t
}
