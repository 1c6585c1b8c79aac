package wire

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// answer is a store's answer as it is written: a record, or an error. The error
// of a refusal has the record.
type answer struct {
	Record  *tenure.Record `json:"record,omitempty"`
	Now     time.Time      `json:"now,omitzero"`
	Awaited bool           `json:"awaited,omitempty"`
	// Signature is that of the lease's stamp.
	Signature fence.Signature `json:"signature,omitempty"`
	Error     json.RawMessage `json:"error,omitempty"`
}

// maxHistories is how many bytes of answers may have histories. Behind them
// records come without, so that the largest batch keeps to [MaxAnswer].
const maxHistories = 1 << 20

// Answers writes the answers to a batch. refused has the refusals of the server
// itself, by index; the store's answer does not count there. If the answers are
// long, the last records come without their history.
func Answers(answers []store.Answer, refused map[int]Problem) []byte {
	body := []byte(`{"answers":[`)
	for i, a := range answers {
		if i > 0 {
			body = append(body, ',')
		}
		p, mine := refused[i]
		if !mine && a.Err != nil {
			p = ProblemOf(a.Err)
		}
		if !mine && p.Code == Invalid && !a.Record.IsZero() {
			p.Record = &a.Record // the law has looked at it
		}
		if p.Record != nil && len(body) > maxHistories {
			short := *p.Record
			short.History = nil
			p.Record = &short
		}
		w := answer{Now: a.Now, Awaited: a.Awaited, Signature: a.Signature}
		switch {
		case mine || a.Err != nil:
			w.Error = p.Bytes()
		case !a.Record.IsZero():
			rec := a.Record
			rec.History = nil // the contract allows it, and clients do not need it
			w.Record = &rec
		}
		body = append(body, encode(w)...)
	}
	return append(body, `]}`...)
}

// ReadAnswers reads the answers to requests. It skips members that it does not
// know. It refuses an answer about another key than the request's.
func ReadAnswers(body []byte, requests []tenure.Request) (answers []store.Answer, err error) {
	err = read(body, false, func(r *reader) error {
		return r.object(func(name string) (bool, error) {
			if name != "answers" {
				return false, nil
			}
			return true, r.list(len(requests), func() error {
				a, err := r.answer()
				if err == nil && !a.Record.IsZero() && a.Record.Key != requests[len(answers)].Key {
					err = r.bad("it is about the key %.80q, which was not asked about", a.Record.Key)
				}
				answers = append(answers, a)
				return err
			})
		})
	})
	if err == nil && len(answers) != len(requests) {
		err = fmt.Errorf("%w answers: there are %d to %d requests", fence.ErrInvalid, len(answers), len(requests))
	}
	return answers, err
}

func (r *reader) answer() (a store.Answer, err error) {
	var p *Problem
	err = r.object(func(name string) (known bool, err error) {
		switch name {
		case "record":
			err = r.record(&a.Record)
		case "now":
			err = r.moment(&a.Now)
		case "awaited":
			err = r.truth(&a.Awaited)
		case "signature":
			err = r.signature(&a.Signature)
		case "error":
			p = &Problem{}
			err = r.problem(p)
		default:
			return false, nil
		}
		return true, err
	})
	if p != nil {
		a.Signature = ""
	}
	switch {
	case err != nil:
		return a, err
	case p == nil && a.Record.IsZero():
		return a, r.bad("it has neither a record nor an error")
	case p != nil && statuses[p.Code] == 0:
		return a, r.bad("its error has no code that Croft knows")
	case p != nil:
		a.Err, a.Record = p.Err(), tenure.Record{}
		if p.Record != nil {
			a.Record = *p.Record
		}
	}
	return a, nil
}

// signature reads the signature of a stamp.
func (r *reader) signature(into *fence.Signature) error {
	err := text(r, into)
	if _, _, ok := into.Split(); err == nil && !ok {
		return r.bad("it does not have the form of a signature")
	}
	return err
}
