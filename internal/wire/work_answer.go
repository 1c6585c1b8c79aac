package wire

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/work"
)

// workAnswer is a ledger's answer as it is written. The item is there if the
// request was refused, too.
type workAnswer struct {
	Item     *work.Item      `json:"item,omitempty"`
	Effect   *work.Effect    `json:"effect,omitempty"`
	Repeated bool            `json:"repeated,omitempty"`
	Now      time.Time       `json:"now,omitzero"`
	Stamp    string          `json:"stamp,omitempty"` // of an act by hand, if it is signed
	Error    json.RawMessage `json:"error,omitempty"`
}

// maxResults bounds the results in the answers to one batch, in bytes.
const maxResults = 1 << 20

// tooLong says that an answer is left out.
func tooLong() Problem {
	return NewProblem(Unknown, "the request was carried out; its answer is left out, because the answers to this "+
		"batch are too long; ask again with fewer requests")
}

// WorkAnswers writes the answers to a batch. refused has the refusals of the
// server itself, by index. It leaves out payloads and checkpoints. Behind the
// first results that are long together, repeated completions are answered as
// unknown: the client asks again for those.
func WorkAnswers(answers []work.Answer, refused map[int]Problem) []byte {
	results := 0
	return list(len(answers), func(i int) []byte {
		a := answers[i]
		p, mine := refused[i]
		if !mine && a.Err == nil && len(a.Item.Result) > 0 {
			if results > 0 && results+len(a.Item.Result) > maxResults {
				p, mine = tooLong(), true
			}
			results += len(a.Item.Result)
		}
		if mine {
			return encode(workAnswer{Error: p.Bytes()})
		}
		return WorkAnswer(a)
	})
}

// WorkAnswer writes one answer, without payload and checkpoint.
func WorkAnswer(a work.Answer) []byte {
	w := workAnswer{Repeated: a.Repeated, Now: a.Now}
	if !a.Item.IsZero() {
		it := Slim(a.Item)
		if a.Err == nil {
			it.Result = a.Item.Result
		}
		w.Item = &it
	}
	if a.Err == nil && a.Item.Signature != "" {
		w.Stamp = a.Item.Stamp().String()
	}
	if a.Err != nil {
		w.Error = ProblemOf(a.Err).Bytes()
	}
	return encode(w)
}

// Slim returns an item without its bytes. Listings and answers have it so.
func Slim(it work.Item) work.Item {
	it.Payload, it.Checkpoint, it.Result = nil, nil, nil
	return it
}

// list writes the answers to a batch.
func list(n int, one func(i int) []byte) []byte {
	body := []byte(`{"answers":[`)
	for i := range n {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(body, one(i)...)
	}
	return append(body, `]}`...)
}

// ReadWorkAnswers reads the answers to requests. It skips members that it does
// not know. It refuses a success that is about another request.
func ReadWorkAnswers(body []byte, requests []work.Request) ([]work.Answer, error) {
	var answers []work.Answer
	err := readAnswers(body, len(requests), func(r *reader, i int) error {
		a, err := r.workAnswer()
		if err == nil && a.Err == nil && !answered(requests[i], a.Item) {
			err = r.bad("it is about another request")
		}
		answers = append(answers, a)
		return err
	})
	return answers, err
}

// answered reports whether an item can be the answer to a request that took
// effect. Add may find an item with the same idempotency key.
func answered(q work.Request, it work.Item) bool {
	if q.Verb == work.Add {
		return it.Queue == q.Queue && (it.ID == q.ID || q.Unique != "")
	}
	return it.ID == q.ID && it.Record.Grant == q.Secret.Grant() && it.Record.Token > 0
}

func readAnswers(body []byte, n int, one func(r *reader, i int) error) error {
	count := 0
	err := read(body, false, func(r *reader) error {
		return r.object(func(name string) (bool, error) {
			if name != "answers" {
				return false, nil
			}
			return true, r.list(n, func() error {
				count++
				return one(r, count-1)
			})
		})
	})
	if err == nil && count != n {
		err = fmt.Errorf("%w answers: there are %d to %d requests", fence.ErrInvalid, count, n)
	}
	return err
}

func (r *reader) workAnswer() (a work.Answer, err error) {
	item := func(name string) (bool, error) { return r.itemMember(name, &a.Item) }
	var written string
	p, err := r.ledgerAnswer("item", item, &a.Repeated, &a.Now, &written)
	if err == nil {
		a.Err, err = r.outcome(p, a.Item.IsZero())
	}
	if err == nil && written != "" {
		stamp, wrong := fence.ParseStamp(written)
		if a.Item.Signature = stamp.Signature; wrong != nil || stamp != a.Item.Stamp() {
			err = r.bad("its stamp is not that of the act")
		}
	}
	return a, err
}

// ledgerAnswer reads an answer about what: an item or an effect. member reads a
// member of it.
func (r *reader) ledgerAnswer(
	what string, member func(name string) (bool, error), repeated *bool, now *time.Time, stamp *string,
) (p *Problem, err error) {
	err = r.object(func(name string) (known bool, err error) {
		switch name {
		case what:
			err = r.object(member)
		case "repeated":
			err = r.truth(repeated)
		case "now":
			err = r.moment(now)
		case "stamp":
			err = text(r, stamp)
		case "error":
			p = &Problem{}
			err = r.problem(p)
		default:
			return false, nil
		}
		return true, err
	})
	return p, err
}

// outcome returns the error of an answer. An answer without one has an item or
// an effect.
func (r *reader) outcome(p *Problem, empty bool) (refused, bad error) {
	switch {
	case p == nil && empty:
		return nil, r.bad("it has neither an outcome nor an error")
	case p != nil && statuses[p.Code] == 0:
		return nil, r.bad("its error has no code that Croft knows")
	case p != nil:
		return p.LedgerErr(), nil
	}
	return nil, nil
}

// EffectAnswers writes the answers to settlements, without the bodies of
// effects.
func EffectAnswers(answers []work.EffectAnswer, refused map[int]Problem) []byte {
	return list(len(answers), func(i int) []byte {
		a := answers[i]
		w := workAnswer{Repeated: a.Repeated, Now: a.Now}
		switch p, mine := refused[i]; {
		case mine:
			return encode(workAnswer{Error: p.Bytes()})
		case a.Err != nil:
			w.Error = ProblemOf(a.Err).Bytes()
		}
		if !a.Effect.IsZero() {
			a.Effect.Body = nil
			w.Effect = &a.Effect
		}
		return encode(w)
	})
}

// ReadEffectAnswers reads the answers to settlements.
func ReadEffectAnswers(body []byte, settlements []work.Settlement) ([]work.EffectAnswer, error) {
	var answers []work.EffectAnswer
	err := readAnswers(body, len(settlements), func(r *reader, i int) error {
		a, err := r.effectAnswer()
		if err == nil && a.Err == nil && a.Effect.EffectID != settlements[i].Effect {
			err = r.bad("it is about another effect")
		}
		answers = append(answers, a)
		return err
	})
	return answers, err
}

func (r *reader) effectAnswer() (a work.EffectAnswer, err error) {
	effect := func(name string) (bool, error) { return r.effectMember(name, &a.Effect) }
	var none string // an effect has no stamp
	p, err := r.ledgerAnswer("effect", effect, &a.Repeated, &a.Now, &none)
	if err == nil {
		a.Err, err = r.outcome(p, a.Effect.IsZero())
	}
	return a, err
}

// Effects writes the answer to a taking.
func Effects(effects []work.Effect) []byte {
	if effects == nil {
		effects = []work.Effect{}
	}
	return encode(struct {
		Effects []work.Effect `json:"effects"`
	}{effects})
}

// ReadEffects reads the answer to a taking. It refuses effects that another
// dispatcher has taken.
func ReadEffects(body []byte, q work.Taking) (effects []work.Effect, err error) {
	err = read(body, false, func(r *reader) error {
		return r.object(func(name string) (bool, error) {
			if name != "effects" {
				return false, nil
			}
			return true, r.list(q.Limit, func() error {
				var e work.Effect
				err := r.object(func(name string) (bool, error) { return r.effectMember(name, &e) })
				if err == nil && (e.Sender != q.Stamp.Token || len(q.To) > 0 && !slices.Contains(q.To, e.To)) {
					err = r.bad("another dispatcher has taken it")
				}
				effects = append(effects, e)
				return err
			})
		})
	})
	return effects, err
}

// Pruned writes how much the ledger has forgotten.
func Pruned(p work.Pruned) []byte { return encode(p) }

// ReadPruned reads how much the ledger has forgotten.
func ReadPruned(data []byte) (p work.Pruned, err error) {
	err = read(data, false, func(r *reader) error {
		return r.object(func(name string) (bool, error) {
			switch name {
			case "items":
				return true, whole(r, &p.Items)
			case "refusals":
				return true, whole(r, &p.Refusals)
			}
			return false, nil
		})
	})
	return p, err
}
