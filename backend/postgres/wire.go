package postgres

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// batch is the requests of one Apply and their answers. The other code refers
// to a request by its index.
type batch struct {
	requests []tenure.Request
	answers  []store.Answer
	waiters  []string // the store's id for each request that asks for a position in the queue, or nil
}

// waiter returns the id under which request i asks for a position in the queue,
// or "".
func (b *batch) waiter(i int) string {
	if b.waiters == nil {
		return ""
	}
	return b.waiters[i]
}

// cut returns how many of the requests make the next call. All requests of a
// key are in one call, so that they keep their order.
func (b *batch) cut(todo []int) int {
	n := min(len(todo), largestCall)
	for n < len(todo) && b.requests[todo[n]].Key == b.requests[todo[n-1]].Key {
		n++
	}
	return n
}

// oneKey reports whether all requests are on one key. Then waiting for the
// key's row delays no other key.
func (b *batch) oneKey(todo []int) bool {
	return b.requests[todo[0]].Key == b.requests[todo[len(todo)-1]].Key
}

func (b *batch) fail(todo []int, err error) {
	for _, i := range todo {
		b.answers[i] = store.Answer{Err: store.Unknown(err)}
	}
}

// waves orders requests as the server takes them. In each wave a key occurs
// once. The acquires of a wave come first, and each part is ordered by key.
// acquires and ends say where the acquires of each wave end, and the wave. todo
// must have the requests of a key together and in their order.
func (b *batch) waves(todo []int) (order []int, acquires, ends []int32) {
	var waves [][2][]int // of each wave: acquires, then others
	depth := 0
	for n, i := range todo {
		depth++
		if n == 0 || b.requests[i].Key != b.requests[todo[n-1]].Key {
			depth = 1
		}
		if len(waves) < depth {
			waves = append(waves, [2][]int{})
		}
		part := 1
		if b.requests[i].Verb == tenure.Acquire {
			part = 0
		}
		waves[depth-1][part] = append(waves[depth-1][part], i)
	}
	for _, w := range waves {
		order = append(order, w[0]...)
		acquires = append(acquires, int32(len(order)))
		order = append(order, w[1]...)
		ends = append(ends, int32(len(order)))
	}
	return order, acquires, ends
}

// arguments adds to args one array for each field of a request.
func (b *batch) arguments(args []any, todo []int) ([]any, error) {
	n := len(todo)
	texts := make([]string, 10*n) // one allocation for all columns
	column := func() (c []string) { c, texts = texts[:n:n], texts[n:]; return c }
	verbs, keys, grants, owners, instances := column(), column(), column(), column(), column()
	guards, progresses, actors, notes, waiters := column(), column(), column(), column(), column()
	ttls, aboves, everys, holds := make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
	resumes, faileds := make([]bool, n), make([]bool, n)
	for k, i := range todo {
		req := &b.requests[i]
		verbs[k], keys[k], grants[k] = string(req.Verb), req.Key, string(req.Secret.Grant())
		owners[k], instances[k], progresses[k] = req.Owner, req.Instance, req.Progress
		if req.Verb == tenure.Checkpoint {
			progresses[k] = base64.StdEncoding.EncodeToString([]byte(req.Checkpoint))
		}
		actors[k], notes[k] = req.Actor, req.Note
		ttls[k], aboves[k], everys[k], holds[k] = micro(req.TTL), int64(req.Above), micro(req.Every), micro(req.HoldFor)
		resumes[k], faileds[k], waiters[k] = req.Resume, req.Failed, b.waiter(i)
		var err error
		if guards[k], err = guardList(req.Guards); err != nil {
			return nil, err
		}
	}
	return append(args, verbs, keys, grants, owners, instances, ttls, aboves, everys, holds, guards, resumes,
		progresses, faileds, actors, notes, waiters), nil
}

// guardList returns a holder's guards as a record keeps them: a JSON array, or
// "".
func guardList(guards []string) (string, error) {
	if len(guards) == 0 {
		return "", nil
	}
	text, err := json.Marshal(guards)
	return string(text), err
}

// take reads one answer to a call for the requests in todo. An answer has the
// request's number in the call, the verdict, the time, the past and the packed
// record. take returns the request's index if the server skipped it, and -1
// otherwise.
func (b *batch) take(todo []int, text string) (skipped int, err error) {
	f := split(text)
	n, err := strconv.Atoi(f[0])
	if err != nil || n < 1 || n > len(todo) || len(f) < 2 {
		return 0, fmt.Errorf("the server's answer to %d requests cannot be read: %q", len(todo), text)
	}
	i := todo[n-1]
	switch f[1] {
	case "skipped":
		return i, nil
	case "granted":
		if b.answers[i], err = granted(&b.requests[i], f[2:]); err != nil {
			return 0, fmt.Errorf("the server's answer cannot be read: %q: %w", text, err)
		}
		return -1, nil
	}
	b.answers[i] = answer(&b.requests[i], f[1:])
	return -1, nil
}

// granted builds the record after the short grant of a key that was given back.
// The server sends the time, the token, the terms, the period, the last
// success, the grid and the checkpoint. The request has the rest.
func granted(req *tenure.Request, f []string) (store.Answer, error) {
	if len(f) != 7 {
		return store.Answer{}, fmt.Errorf("it has %d fields", len(f))
	}
	state, err := base64.StdEncoding.DecodeString(f[6])
	if err != nil {
		return store.Answer{}, err
	}
	n := numbers{f: f}
	now, ttl := n.time(0), req.TTL.Truncate(time.Microsecond)
	return store.Answer{Now: now, Record: tenure.Record{
		Key: req.Key, Token: fence.Token(n.at(1)), Grant: req.Secret.Grant(),
		Owner: req.Owner, Instance: req.Instance, State: tenure.Held, Cause: tenure.Released,
		Acquired: now, Renewed: now, Deadline: now.Add(ttl), TTL: ttl, Every: n.duration(3),
		Succeeded: n.time(4), Grid: n.time(5), Guards: slices.Clone(req.Guards), Terms: n.at(2),
		Checkpoint: string(state),
	}}, n.err
}

// allAnswered makes sure that no request is without an answer.
func allAnswered(seen, want int) error {
	if seen != want {
		return fmt.Errorf("the server answered %d of %d requests", seen, want)
	}
	return nil
}

// answer reads the server's verdict. The server does not send the reason of a
// refusal. answer asks the law for it, with the record and the time that the
// server decided by.
func answer(req *tenure.Request, f []string) store.Answer {
	unreadable := func(err error) store.Answer { return store.Answer{Err: store.Unknown(err)} }
	if len(f) < 3 {
		return unreadable(fmt.Errorf("postgres: the server's answer to %s %q cannot be read", req.Verb, req.Key))
	}
	us, err := strconv.ParseInt(f[1], 10, 64)
	if err != nil {
		return unreadable(err)
	}
	var rec tenure.Record
	if len(f) > 3 {
		if rec, err = unpack(req.Key, f[3:], f[2]); err != nil {
			return unreadable(err)
		}
	}
	now := time.UnixMicro(us).UTC()
	if f[0] == "done" {
		awaited := req.Verb == tenure.Release && len(f) > 3 && f[3+fAwaited] == "t"
		return store.Answer{Record: rec, Now: now, Awaited: awaited}
	}
	if _, _, err = tenure.Apply(rec, *req, now); err == nil {
		return unreadable(fmt.Errorf("postgres: the server refused to %s %q and the law does not: "+
			"somebody has changed the schema's functions; "+
			"let its owner make them again, as the last lines of `croft schema postgres` say", req.Verb, req.Key))
	}
	return store.Answer{Record: rec, Now: now, Err: err}
}
