package postgres

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// ErrDamaged is matched by the error about a row that cannot be one of the law's: somebody has changed it by hand. Nothing is decided from it.
var ErrDamaged = errors.New("damaged record")

// row is a lease as a statement returns it; nothing in it is set where there is no record.
type row struct {
	past                                               []byte
	token                                              *int64
	grant, owner, instance, state, cause, ended        *string
	actor, note                                        *string
	acquired, renewed, deadline, ttl, every, succeeded *int64
	holdUntil                                          *int64
	guards, progress                                   *string
	progressAt, terms                                  *int64
}

// into are the places of a statement's columns, from past on, in the order in which all statements name them.
func (r *row) into() []any {
	return []any{
		&r.past, &r.token, &r.grant, &r.owner, &r.instance, &r.state, &r.cause, &r.ended, &r.actor, &r.note, &r.acquired, &r.renewed, &r.deadline,
		&r.ttl, &r.every, &r.succeeded, &r.holdUntil, &r.guards, &r.progress, &r.progressAt, &r.terms,
	}
}

// term is a transfer as croft.past_of writes it.
type term struct {
	Token    int64  `json:"token"`
	Grant    string `json:"grant"`
	Owner    string `json:"owner"`
	Instance string `json:"instance"`
	State    string `json:"state"`
	Cause    string `json:"cause"`
	Actor    string `json:"actor"`
	Note     string `json:"note"`
	Acquired int64  `json:"acquired"`
	Finished int64  `json:"finished"`
	Ended    string `json:"ended"`
}

// record is the row as the law knows it; with its history if the statement gave one.
func (r *row) record(key string) (tenure.Record, error) {
	if r.token == nil {
		return tenure.Record{}, nil
	}
	rec := tenure.Record{
		Key: key, Token: fence.Token(*r.token), Grant: fence.Grant(*r.grant), Owner: *r.owner, Instance: *r.instance,
		State: tenure.State(*r.state), Cause: tenure.Cause(*r.cause), Ended: tenure.End(*r.ended), Actor: *r.actor, Note: *r.note,
		Acquired: fromMicro(r.acquired), Renewed: fromMicro(r.renewed), Deadline: fromMicro(r.deadline), TTL: duration(r.ttl),
		Every: duration(r.every), Succeeded: fromMicro(r.succeeded), HoldUntil: fromMicro(r.holdUntil),
		Progress: *r.progress, ProgressAt: fromMicro(r.progressAt), Terms: *r.terms,
	}
	if *r.guards != "" {
		if err := json.Unmarshal([]byte(*r.guards), &rec.Guards); err != nil {
			return tenure.Record{}, damaged(key, fmt.Errorf("its guards: %w", err))
		}
	}
	if r.past == nil {
		return rec, nil
	}
	var past []term
	if err := json.Unmarshal(r.past, &past); err != nil {
		return tenure.Record{}, damaged(key, fmt.Errorf("its history: %w", err))
	}
	for _, t := range past {
		rec.History = append(rec.History, tenure.Term{
			Token: fence.Token(t.Token), Grant: fence.Grant(t.Grant), Owner: t.Owner, Instance: t.Instance, State: tenure.State(t.State),
			Cause: tenure.Cause(t.Cause), Actor: t.Actor, Note: t.Note,
			Acquired: fromMicro(&t.Acquired), Finished: fromMicro(&t.Finished), Ended: tenure.End(t.Ended),
		})
	}
	rec.History = append(rec.History, newest(rec))
	if err := rec.Check(); err != nil {
		return tenure.Record{}, damaged(key, err)
	}
	return rec, nil
}

// newest is the transfer that the record itself tells of. Only a release ends it without another taking its place, and moves the deadline
// to that moment.
func newest(rec tenure.Record) tenure.Term {
	t := tenure.Term{
		Token: rec.Token, Grant: rec.Grant, Owner: rec.Owner, Instance: rec.Instance, State: rec.State,
		Cause: rec.Cause, Actor: rec.Actor, Note: rec.Note, Acquired: rec.Acquired, Ended: rec.Ended,
	}
	if rec.Ended != "" {
		t.State, t.Finished = tenure.Held, rec.Deadline
	}
	return t
}

// damaged names a row. Its error must not match fence.ErrInvalid as the record's own does: the caller's input was good.
func damaged(key string, err error) error {
	return fmt.Errorf("%w: key %q: %s; delete its row from the table lease if the key may be forgotten", ErrDamaged, key, err.Error())
}

func duration(us *int64) time.Duration { return time.Duration(*us) * time.Microsecond }
