package storetest

import (
	"fmt"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

func sequences() []check {
	return []check{
		{"random requests follow the law", randomRequests},
		{"random batches follow the law", randomBatches},
	}
}

// author makes up requests on one key: sensible, late and wrong ones.
type author struct {
	*trial
	key     string
	secrets []tenure.Secret // of earlier requests; most of their leases are over
}

// randomRequests runs many sequences in turns, so that they share the time that
// a check has to wait.
func randomRequests(t *trial) {
	by := t.authors("single", t.many(60, 6, 20))
	for range t.many(40, 20, 25) {
		for i := range by {
			t.step(by[i].request())
		}
		t.letTimePass(by)
	}
}

func (t *trial) authors(group string, n int) []author {
	by := make([]author, n)
	for i := range by {
		by[i] = author{trial: t, key: fmt.Sprintf("sequences/%s/%d", group, i)}
	}
	return by
}

func randomBatches(t *trial) {
	by := t.authors("batch", 6)
	for range t.many(200, 20, 60) {
		var requests []tenure.Request
		for range 1 + t.rand.IntN(16) {
			requests = append(requests, by[t.rand.IntN(len(by))].request())
		}
		t.steps(t.store, requests...)
		t.letTimePass(by)
	}
}

// pickOne returns one of its arguments, at random.
func pickOne[T any](t *trial, of ...T) T { return of[t.rand.IntN(len(of))] }

func (by *author) request() tenure.Request {
	t := by.trial
	req := tenure.Request{
		Verb: pickOne(t, tenure.Acquire, tenure.Acquire, tenure.Acquire, tenure.Renew, tenure.Renew, tenure.Report,
			tenure.Checkpoint, tenure.Release, tenure.Release, tenure.Takeover, tenure.Reserve, tenure.Revoke),
		Key:    by.key,
		Secret: by.secret(),
		Owner:  pickOne(t, "ann", "bob", "cleo"),
		TTL:    pickOne(t, 10*time.Millisecond, brief, long, 25*time.Hour),
	}
	switch req.Verb {
	case tenure.Acquire:
		req.Instance = pickOne(t, "", "run 1", "run 2")
		req.Every = pickOne(t, 0, 0, 0, brief, long)
		req.HoldFor = pickOne(t, 0, 0, 0, brief, long)
		req.Above = pickOne(t, 0, 0, 0, 0, 1, fence.Token(time.Now().UnixMicro()),
			tenure.MaxAbove-fence.Token(t.rand.IntN(1000)))
		req.Guards = pickOne(t, nil, []string{"file:///a"}, []string{"redis://h#k", "/b"})
	case tenure.Renew:
		req.TTL = pickOne(t, 0, 0, req.TTL)
		req.Resume = pickOne(t, false, false, true)
	case tenure.Report:
		req.Resume = pickOne(t, false, false, true)
		req.Progress = pickOne(t, "", "step 1", "step 2")
	case tenure.Checkpoint:
		req.Resume = pickOne(t, false, false, true)
		req.Checkpoint = pickOne(t, "", "page 1", "page\x00\xff")
	case tenure.Release:
		req.Failed = pickOne(t, false, true)
	default:
		req.Actor, req.Note = pickOne(t, "olga", "otto"), pickOne(t, "because", "stuck")
	}
	if t.rand.IntN(25) == 0 {
		req.Secret = "not a secret"
	}
	return req
}

// secret returns a new secret, or one of the last few. It prefers the newest,
// so that some requests succeed.
func (by *author) secret() tenure.Secret {
	n := len(by.secrets)
	switch {
	case n == 0 || by.rand.IntN(3) == 0:
		by.secrets = append(by.secrets, tenure.NewSecret())
		return by.secrets[n]
	case by.rand.IntN(3) > 0:
		return by.secrets[n-1]
	}
	return by.secrets[n-1-by.rand.IntN(min(n, 5))]
}

// letTimePass moves the clock by nothing, by a little, to the exact edge of a
// time in one author's record, or beyond it. The store may drop a record that
// was idle for long, at any moment. So an author whose record is about to be
// droppable goes on with another key.
func (t *trial) letTimePass(by []author) {
	if t.Advance == nil {
		if t.rand.IntN(6) == 0 {
			t.pass(t.now().Add(brief))
		}
		return
	}
	began := t.now()
	switch t.rand.IntN(8) {
	case 0:
		t.Advance(time.Microsecond)
	case 1:
		t.Advance(brief)
	case 2, 3:
		rec := t.get(t.store, pickOne(t, by...).key)
		edge := pickOne(t, rec.Deadline, rec.HoldUntil, rec.Due(long)).
			Add(pickOne(t, -time.Microsecond, 0, time.Microsecond))
		if left := edge.Sub(t.now()); left > 0 && left < 100*time.Hour {
			t.Advance(left)
		}
	case 4:
		t.Advance(long + time.Second)
	}
	const retention = 24 * time.Hour // the default of every store
	soon := t.now().Add(2 * long)
	for i := range by {
		if soon.Sub(began) <= 2*long+brief {
			break
		}
		if rec := t.get(t.store, by[i].key); !rec.IsZero() && rec.Droppable(soon, retention) {
			by[i] = author{trial: t, key: by[i].key + "'"}
		}
	}
}
