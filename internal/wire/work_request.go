package wire

import (
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/work"
)

// The limits of one call about work items.
const (
	// MaxWorkBody is the size of the longest body that a server reads about
	// items. The largest request fits in: a completion with a result and all
	// its effects. A body longer than [MaxBody] has one request.
	MaxWorkBody = 26 << 20
	// MaxItem is the size of the longest item with all its bytes, and of the
	// longest effect.
	MaxItem = 8 << 20
	// heavy is the weight of a request whose answer can be long. A call carries
	// requests of at most the weight [MaxBatch].
	heavy = 16
)

// Weight is what a request counts in a batch. The answer to a repeated
// completion has its result, and the answer to an act by hand has the item's
// history.
func Weight(q work.Request) int {
	if q.Verb == work.Complete || q.Verb.ByHand() || q.Verb == work.Requeue {
		return heavy
	}
	return 1
}

// Weigh adds the weights of requests.
func Weigh(requests []work.Request) (sum int) {
	for _, q := range requests {
		sum += Weight(q)
	}
	return sum
}

// workRequest is a request about an item as it is written.
type workRequest struct {
	Verb      work.Verb   `json:"verb,omitempty"`
	ID        work.ID     `json:"id,omitempty"`
	Token     fence.Token `json:"token,omitempty"`
	Secret    string      `json:"secret,omitempty"`
	Queue     string      `json:"queue,omitempty"`
	Unique    string      `json:"unique,omitempty"`
	Partition string      `json:"partition,omitempty"`
	Payload   []byte      `json:"payload,omitempty"`
	Priority  int         `json:"priority,omitempty"`
	Limit     int         `json:"limit,omitempty"`
	NotBefore time.Time   `json:"not_before,omitzero"`
	Guards    []string    `json:"guards,omitempty"`
	Delay     string      `json:"delay,omitempty"`
	TTL       string      `json:"ttl,omitempty"`
	Progress  string      `json:"progress,omitempty"`
	State     []byte      `json:"state,omitempty"`
	Result    []byte      `json:"result,omitempty"`
	Effects   []emission  `json:"effects,omitempty"`
	Error     string      `json:"error,omitempty"`
	Final     bool        `json:"final,omitempty"`
	Owner     string      `json:"owner,omitempty"`
	Instance  string      `json:"instance,omitempty"`
	Actor     string      `json:"actor,omitempty"`
	Note      string      `json:"note,omitempty"`
	Again     bool        `json:"again,omitempty"`
}

type emission struct {
	Name       string `json:"name"`
	To         string `json:"to,omitempty"`
	Body       []byte `json:"body,omitempty"`
	AtMostOnce bool   `json:"at_most_once,omitempty"`
}

// WorkRequest writes a request about an item, with its secret. It must have
// passed work.Request.Check.
func WorkRequest(q work.Request) []byte {
	w := workRequest{
		Verb: q.Verb, ID: q.ID, Token: q.Token, Secret: string(q.Secret), Queue: q.Queue, Unique: q.Unique,
		Partition: q.Partition, Payload: q.Payload, Priority: q.Priority, Limit: q.Limit,
		NotBefore: moment(q.NotBefore), Guards: q.Guards,
		Delay: span(q.Delay), TTL: span(q.TTL), Progress: q.Progress, State: q.State, Result: q.Result,
		Error: q.Error, Final: q.Final, Owner: q.Owner, Instance: q.Instance, Actor: q.Actor, Note: q.Note,
		Again: q.Again,
	}
	for _, e := range q.Effects {
		w.Effects = append(w.Effects, emission(e))
	}
	return encode(w)
}

// moment is a time as it is written. The law refuses those that JSON cannot
// express, so they need only stay out of reach.
func moment(t time.Time) time.Time {
	t = t.UTC()
	switch year := t.Year(); {
	case year > 9999:
		return time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)
	case year < 1 && !t.IsZero():
		return time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC)
	}
	return t
}

// WorkBatches writes requests as the bodies of calls. Each has at most
// [MaxBody] bytes and the weight [MaxBatch], unless it has a single request.
// sizes has the number of requests in each.
func WorkBatches(requests []work.Request) (bodies [][]byte, sizes []int) {
	return batches(requests, WorkRequest, Weight)
}

// ReadWorkBatch reads the body of POST /v1/work/apply, strictly. It does not
// check the requests themselves.
func ReadWorkBatch(body []byte) (requests []work.Request, err error) {
	err = read(body, true, func(r *reader) error {
		return r.object(func(name string) (bool, error) {
			if name != "requests" {
				return false, nil
			}
			return true, r.list(MaxBatch, func() error {
				var q work.Request
				err := r.object(func(name string) (bool, error) {
					switch name {
					case "verb":
						return true, text(r, &q.Verb)
					case "id":
						return true, text(r, &q.ID)
					}
					return r.workMember(name, &q)
				})
				requests = append(requests, q)
				return err
			})
		})
	})
	return requests, err
}

// ReadWorkCall reads the body of a call that names item and verb in its path,
// strictly.
func ReadWorkCall(body []byte, verb work.Verb, id work.ID) (q work.Request, err error) {
	q.Verb, q.ID = verb, id
	err = read(body, true, func(r *reader) error {
		return r.object(func(name string) (bool, error) { return r.workMember(name, &q) })
	})
	return q, err
}

// maxEffects bounds a list of effects before the law looks at it.
const maxEffects = 4 * work.MaxEffects

// workMember reads a member of a request about an item, but for verb and ID.
func (r *reader) workMember(name string, q *work.Request) (known bool, err error) {
	switch name {
	case "token":
		err = whole(r, &q.Token)
	case "secret":
		err = text(r, &q.Secret)
	case "queue":
		err = text(r, &q.Queue)
	case "unique":
		err = text(r, &q.Unique)
	case "partition":
		err = text(r, &q.Partition)
	case "payload":
		err = r.data(&q.Payload)
	case "priority":
		err = whole(r, &q.Priority)
	case "limit":
		err = whole(r, &q.Limit)
	case "not_before":
		err = r.moment(&q.NotBefore)
	case "guards":
		err = r.texts(maxGuards, &q.Guards)
	case "delay":
		err = r.duration(&q.Delay)
	case "ttl":
		err = r.duration(&q.TTL)
	case "progress":
		err = text(r, &q.Progress)
	case "state":
		err = r.data(&q.State)
	case "result":
		err = r.data(&q.Result)
	case "effects":
		err = r.list(maxEffects, func() error {
			var e work.Emission
			err := r.emission(&e)
			q.Effects = append(q.Effects, e)
			return err
		})
	case "error":
		err = text(r, &q.Error)
	case "final":
		err = r.truth(&q.Final)
	case "owner":
		err = text(r, &q.Owner)
	case "instance":
		err = text(r, &q.Instance)
	case "actor":
		err = text(r, &q.Actor)
	case "note":
		err = text(r, &q.Note)
	case "again":
		err = r.truth(&q.Again)
	default:
		return false, nil
	}
	return true, err
}

func (r *reader) emission(e *work.Emission) error {
	return r.object(func(name string) (known bool, err error) {
		switch name {
		case "name":
			err = text(r, &e.Name)
		case "to":
			err = text(r, &e.To)
		case "body":
			err = r.data(&e.Body)
		case "at_most_once":
			err = r.truth(&e.AtMostOnce)
		default:
			return false, nil
		}
		return true, err
	})
}

// Claim writes a claim, with its secret.
func Claim(c work.Claim) []byte {
	return encode(struct {
		Queues   []string `json:"queues"`
		Limit    int      `json:"limit"`
		Secret   string   `json:"secret"`
		Owner    string   `json:"owner,omitempty"`
		Instance string   `json:"instance,omitempty"`
		TTL      string   `json:"ttl"`
		Again    bool     `json:"again,omitempty"`
	}{c.Queues, c.Limit, string(c.Secret), c.Owner, c.Instance, c.TTL.String(), c.Again})
}

// MaxQueues is how many queues one claim or one stream of hints names.
const MaxQueues = 256

// ReadClaim reads the body of POST /v1/work/claim, strictly. Without a limit
// and a TTL it is a claim of one item for the usual time.
func ReadClaim(body []byte) (c work.Claim, wait time.Duration, err error) {
	c.Limit, c.TTL = 1, work.DefaultTTL
	err = read(body, true, func(r *reader) error {
		return r.object(func(name string) (known bool, err error) {
			switch name {
			case "queues":
				err = r.texts(MaxQueues, &c.Queues)
			case "limit":
				err = whole(r, &c.Limit)
			case "secret":
				err = text(r, &c.Secret)
			case "owner":
				err = text(r, &c.Owner)
			case "instance":
				err = text(r, &c.Instance)
			case "ttl":
				err = r.duration(&c.TTL)
			case "again":
				err = r.truth(&c.Again)
			case "wait":
				err = r.duration(&wait)
			default:
				return false, nil
			}
			return true, err
		})
	})
	return c, wait, err
}

// Taking writes a taking.
func Taking(q work.Taking) []byte {
	return encode(struct {
		Stamp   string   `json:"stamp"`
		To      []string `json:"to,omitempty"`
		Ordered bool     `json:"ordered,omitempty"`
		Limit   int      `json:"limit"`
		Hold    string   `json:"hold"`
	}{q.Stamp.String(), q.To, q.Ordered, q.Limit, q.Hold.String()})
}

// maxDestinations is more than any dispatcher has.
const maxDestinations = 4096

// ReadTaking reads the body of POST /v1/work/take, strictly.
func ReadTaking(body []byte) (q work.Taking, err error) {
	err = read(body, true, func(r *reader) error {
		return r.object(func(name string) (known bool, err error) {
			switch name {
			case "stamp":
				err = r.stamp(&q.Stamp)
			case "to":
				err = r.texts(maxDestinations, &q.To)
			case "ordered":
				err = r.truth(&q.Ordered)
			case "limit":
				err = whole(r, &q.Limit)
			case "hold":
				err = r.duration(&q.Hold)
			default:
				return false, nil
			}
			return true, err
		})
	})
	return q, err
}

// stamp reads a stamp in its text form.
func (r *reader) stamp(into *fence.Stamp) error {
	var word string
	err := text(r, &word)
	if err == nil {
		*into, err = fence.ParseStamp(word)
	}
	return err
}

// settlement is a settlement as it is written.
type settlement struct {
	Effect  string           `json:"effect"`
	Attempt int              `json:"attempt"`
	State   work.EffectState `json:"state"`
	Delay   string           `json:"delay,omitempty"`
	Error   string           `json:"error,omitempty"`
	Stamp   string           `json:"stamp,omitempty"`
	Actor   string           `json:"actor,omitempty"`
	Note    string           `json:"note,omitempty"`
}

func settlementOf(s work.Settlement) []byte {
	w := settlement{
		Effect: s.Effect.String(), Attempt: s.Attempt, State: s.State, Delay: span(s.Delay), Error: s.Error,
		Actor: s.Actor, Note: s.Note,
	}
	if !s.ByHand() {
		w.Stamp = s.Stamp.String()
	}
	return encode(w)
}

// SettleBatches writes settlements as the bodies of calls, as WorkBatches does.
func SettleBatches(settlements []work.Settlement) (bodies [][]byte, sizes []int) {
	return batches(settlements, settlementOf, func(work.Settlement) int { return 1 })
}

// ReadSettlements reads the body of POST /v1/work/settle, strictly.
func ReadSettlements(body []byte) (settlements []work.Settlement, err error) {
	err = read(body, true, func(r *reader) error {
		return r.object(func(name string) (bool, error) {
			if name != "requests" {
				return false, nil
			}
			return true, r.list(MaxBatch, func() error {
				var s work.Settlement
				err := r.settlement(&s)
				settlements = append(settlements, s)
				return err
			})
		})
	})
	return settlements, err
}

func (r *reader) settlement(s *work.Settlement) error {
	return r.object(func(name string) (known bool, err error) {
		switch name {
		case "effect":
			var word string
			if err = text(r, &word); err == nil {
				s.Effect, err = work.ParseEffectID(word)
			}
		case "attempt":
			err = whole(r, &s.Attempt)
		case "state":
			err = text(r, &s.State)
		case "delay":
			err = r.duration(&s.Delay)
		case "error":
			err = text(r, &s.Error)
		case "stamp":
			err = r.stamp(&s.Stamp)
		case "actor":
			err = text(r, &s.Actor)
		case "note":
			err = text(r, &s.Note)
		default:
			return false, nil
		}
		return true, err
	})
}

// Prune writes a request to forget what the retention no longer keeps.
func Prune(r work.Retention, limit int) []byte {
	return encode(struct {
		Done     string `json:"done,omitempty"`
		Dead     string `json:"dead,omitempty"`
		Refusals string `json:"refusals,omitempty"`
		Limit    int    `json:"limit"`
	}{span(r.Done), span(r.Dead), span(r.Refusals), limit})
}

// ReadPrune reads the body of POST /v1/work/prune, strictly.
func ReadPrune(body []byte) (keep work.Retention, limit int, err error) {
	err = read(body, true, func(r *reader) error {
		return r.object(func(name string) (bool, error) {
			switch name {
			case "done":
				return true, r.duration(&keep.Done)
			case "dead":
				return true, r.duration(&keep.Dead)
			case "refusals":
				return true, r.duration(&keep.Refusals)
			case "limit":
				return true, whole(r, &limit)
			}
			return false, nil
		})
	})
	return keep, limit, err
}
