package redis

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// ErrDamaged is matched by the error about a record that cannot be one of the law's. Nothing is decided from it and nothing is written over it.
var ErrDamaged = errors.New("damaged record")

// answer makes what the script says of a request into what the law says of it.
func answer(req tenure.Request, now time.Time, outcome, text, terms string) store.Answer {
	rec, err := parseRecord(req.Key, text, terms)
	if err != nil || outcome == "damaged" {
		return store.Answer{Err: store.Unknown(damaged(req.Key, err))}
	}
	if outcome != string(tenure.WhyTakenOver) {
		rec.History = nil // the newest term alone is not the history
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

// fields reads lines of text one by one and remembers the first that is not as it should be.
type fields struct {
	lines []string
	err   error
}

func (f *fields) text() string {
	if len(f.lines) == 0 {
		f.err = errors.New("it is cut off")
		return ""
	}
	line := f.lines[0]
	f.lines = f.lines[1:]
	return line
}

func (f *fields) number() int64 {
	text := f.text()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil && f.err == nil {
		f.err = fmt.Errorf("%q is not a number", text)
	}
	return n
}

func (f *fields) duration() time.Duration { return time.Duration(f.number()) * time.Microsecond }

func (f *fields) time() time.Time {
	n := f.number()
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMicro(n).UTC()
}

// moment reads the script's time.
func moment(text string) (time.Time, error) {
	f := fields{lines: []string{text}}
	at := f.time()
	return at, f.err
}

// The lines of a record and of a term, as apply.lua writes them.
const (
	recordLines = 22
	termLines   = 11
)

// parseRecord reads a record. Its history is whole if terms are those before the newest.
func parseRecord(key, text, terms string) (tenure.Record, error) {
	if text == "" {
		return tenure.Record{}, nil
	}
	f := &fields{lines: strings.Split(strings.TrimSuffix(text, "\n"), "\n")}
	if len(f.lines) != recordLines {
		return tenure.Record{}, fmt.Errorf("it has %d lines, not %d", len(f.lines), recordLines)
	}
	f.number() // when it leaves
	rec := tenure.Record{
		Key:       key,
		Token:     fence.Token(f.number()),
		Grant:     fence.Grant(f.text()),
		State:     tenure.State(f.text()),
		Cause:     tenure.Cause(f.text()),
		Ended:     tenure.End(f.text()),
		Acquired:  f.time(),
		Renewed:   f.time(),
		Deadline:  f.time(),
		TTL:       f.duration(),
		Every:     f.duration(),
		Succeeded: f.time(),
		HoldUntil: f.time(),
		Terms:     f.number(),
	}
	f.number() // transfers
	rec.Owner, rec.Instance, rec.Actor, rec.Note, rec.Progress = f.text(), f.text(), f.text(), f.text(), f.text()
	rec.ProgressAt = f.time()
	if guards := f.text(); guards != "" {
		rec.Guards = strings.Split(guards, "\t")
	}
	if f.err != nil {
		return tenure.Record{}, f.err
	}
	var err error
	rec.History, err = parseTerms(terms)
	rec.History = append(rec.History, newest(rec))
	return rec, err
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

// parseTerms reads terms, oldest first: their tokens rise.
func parseTerms(text string) ([]tenure.Term, error) {
	if text == "" {
		return nil, nil
	}
	f := &fields{lines: strings.Split(strings.TrimSuffix(text, "\n"), "\n")}
	if len(f.lines)%termLines != 0 {
		return nil, fmt.Errorf("its history has %d lines, not %d for each term", len(f.lines), termLines)
	}
	terms := make([]tenure.Term, 0, len(f.lines)/termLines+1)
	for len(f.lines) > 0 {
		terms = append(terms, tenure.Term{
			Token: fence.Token(f.number()), Grant: fence.Grant(f.text()), Owner: f.text(), Instance: f.text(), State: tenure.State(f.text()),
			Cause: tenure.Cause(f.text()), Actor: f.text(), Note: f.text(), Acquired: f.time(), Finished: f.time(), Ended: tenure.End(f.text()),
		})
	}
	slices.SortFunc(terms, func(a, b tenure.Term) int { return int(a.Token - b.Token) })
	return terms, f.err
}
