package wire

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// request is a request of the law as it is written.
type request struct {
	Verb       tenure.Verb `json:"verb,omitempty"`
	Key        string      `json:"key,omitempty"`
	Secret     string      `json:"secret"`
	Owner      string      `json:"owner,omitempty"`
	Instance   string      `json:"instance,omitempty"`
	TTL        string      `json:"ttl,omitempty"`
	Above      fence.Token `json:"above,omitempty"`
	Every      string      `json:"every,omitempty"`
	HoldFor    string      `json:"hold_for,omitempty"`
	Guards     []string    `json:"guards,omitempty"`
	Resume     bool        `json:"resume,omitempty"`
	Progress   string      `json:"progress,omitempty"`
	Checkpoint []byte      `json:"checkpoint,omitempty"`
	Failed     bool        `json:"failed,omitempty"`
	Actor      string      `json:"actor,omitempty"`
	Note       string      `json:"note,omitempty"`
}

// Request writes a request of the law as JSON, with its secret. It must have
// passed tenure.Request.Check.
func Request(q tenure.Request) []byte {
	return encode(request{
		Verb: q.Verb, Key: q.Key, Secret: string(q.Secret), Owner: q.Owner, Instance: q.Instance,
		TTL: span(q.TTL), Above: q.Above, Every: span(q.Every), HoldFor: span(q.HoldFor), Guards: q.Guards,
		Resume: q.Resume, Progress: q.Progress, Checkpoint: []byte(q.Checkpoint), Failed: q.Failed,
		Actor: q.Actor, Note: q.Note,
	})
}

// span writes a duration. Zero is left out.
func span(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

// The body of POST /v1/apply is a Batch's beginning, its requests with commas
// between them, and its end.
const (
	batchBegin = `{"requests":[`
	batchEnd   = `]}`
)

// Batches writes requests as the bodies of calls. Each has at most [MaxBatch]
// requests and [MaxBody] bytes. sizes has the number of requests in each.
func Batches(requests []tenure.Request) (bodies [][]byte, sizes []int) {
	return batches(requests, Request, func(tenure.Request) int { return 1 })
}

// batches writes requests as the bodies of calls. Each has at most the weight
// [MaxBatch] and [MaxBody] bytes, unless it has a single request.
func batches[Q any](requests []Q, write func(Q) []byte, weigh func(Q) int) (bodies [][]byte, sizes []int) {
	var body []byte
	size, weight := 0, 0
	end := func() {
		if size > 0 {
			bodies, sizes = append(bodies, append(body, batchEnd...)), append(sizes, size)
		}
		body, size, weight = []byte(batchBegin), 0, 0
	}
	end()
	for _, q := range requests {
		one := write(q)
		if size > 0 && weight+weigh(q) > MaxBatch || len(body)+1+len(one)+len(batchEnd) > MaxBody {
			end()
		}
		if size > 0 {
			body = append(body, ',')
		}
		body, size, weight = append(body, one...), size+1, weight+weigh(q)
	}
	end()
	return bodies, sizes
}

// ReadBatch reads the body of POST /v1/apply, strictly. It does not check the
// requests themselves.
func ReadBatch(body []byte) (requests []tenure.Request, err error) {
	err = read(body, true, func(r *reader) error {
		return r.object(func(name string) (bool, error) {
			if name != "requests" {
				return false, nil
			}
			return true, r.list(MaxBatch, func() error {
				var q tenure.Request
				err := r.object(func(name string) (bool, error) {
					switch name {
					case "verb":
						return true, text(r, &q.Verb)
					case "key":
						return true, text(r, &q.Key)
					}
					return r.requestMember(name, &q)
				})
				requests = append(requests, q)
				return err
			})
		})
	})
	return requests, err
}

// ReadCall reads the body of a call that names verb and key in its path,
// strictly. Only an acquire may have a wait.
func ReadCall(body []byte, verb tenure.Verb, key string) (q tenure.Request, wait time.Duration, err error) {
	q.Verb, q.Key = verb, key
	err = read(body, true, func(r *reader) error {
		return r.object(func(name string) (bool, error) {
			if name == "wait" && verb == tenure.Acquire {
				return true, r.duration(&wait)
			}
			return r.requestMember(name, &q)
		})
	})
	return q, wait, err
}

// ReadStamp reads the body of POST /v1/verify, strictly.
func ReadStamp(body []byte) (stamp fence.Stamp, err error) {
	var word string
	err = read(body, true, func(r *reader) error {
		return r.object(func(name string) (bool, error) {
			if name != "stamp" {
				return false, nil
			}
			return true, text(r, &word)
		})
	})
	if err != nil {
		return stamp, err
	}
	return fence.ParseStamp(word)
}

// maxGuards bounds a list of guards before the law looks at it.
const maxGuards = 4 * tenure.MaxGuards

// requestMember reads a member of a request, but for verb and key.
func (r *reader) requestMember(name string, q *tenure.Request) (known bool, err error) {
	switch name {
	case "secret":
		err = text(r, &q.Secret)
	case "owner":
		err = text(r, &q.Owner)
	case "instance":
		err = text(r, &q.Instance)
	case "ttl":
		err = r.duration(&q.TTL)
	case "above":
		err = whole(r, &q.Above)
	case "every":
		err = r.duration(&q.Every)
	case "hold_for":
		err = r.duration(&q.HoldFor)
	case "guards":
		err = r.texts(maxGuards, &q.Guards)
	case "resume":
		err = r.truth(&q.Resume)
	case "progress":
		err = text(r, &q.Progress)
	case "checkpoint":
		err = r.bytes(&q.Checkpoint)
	case "failed":
		err = r.truth(&q.Failed)
	case "actor":
		err = text(r, &q.Actor)
	case "note":
		err = text(r, &q.Note)
	default:
		return false, nil
	}
	return true, err
}

// encode writes a value as JSON. It escapes nothing for the sake of HTML.
func encode(value any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		// Only a time beyond the year 9999 cannot be written.
		return []byte("null")
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}
