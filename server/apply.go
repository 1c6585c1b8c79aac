package server

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/wire"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// apply answers POST /v1/apply: a batch of requests, with an answer each.
func (s *Server) apply(c *call) error {
	body, err := c.body()
	if err != nil {
		return err
	}
	requests, err := wire.ReadBatch(body)
	if err != nil {
		return err
	}
	give, ok := s.batchShares.take(c.id.Name, len(requests))
	if !ok {
		return busy("requests of one client")
	}
	defer give()
	refused := map[int]wire.Problem{}
	admitted := make([]tenure.Request, 0, len(requests))
	var index []int // of the admitted requests
	for i := range requests {
		if p := s.admit(c.id, &requests[i]); p != nil {
			refused[i] = *p
			s.audit(c, requests[i], refuse(*p))
			continue
		}
		admitted, index = append(admitted, requests[i]), append(index, i)
	}
	c.told.Requests = len(requests)
	some, err := s.batcher.apply(c.Context(), admitted)
	if err != nil {
		return err
	}
	store.SignGrants(s.o.SignKey, admitted, some)
	answers := make([]store.Answer, len(requests))
	for n, a := range some {
		a.Awaited = a.Awaited || s.waiters.awaited(admitted[n], a.Err)
		answers[index[n]] = s.conceal(c.id, admitted[n].Key, a)
		s.audit(c, admitted[n], a.Err)
	}
	err = unanswered(len(some), func(i int) error { return some[i].Err })
	if err != nil && len(refused) == 0 {
		return err
	}
	c.send(http.StatusOK, wire.JSON, wire.Answers(answers, refused))
	return nil
}

// unanswered returns an error if the store has answered nothing. errOf returns
// the error of each answer. It is a fault if all are.
func unanswered(answers int, errOf func(i int) error) (err error) {
	for i := range answers {
		one := errOf(i)
		if !errors.Is(one, store.ErrUnknown) {
			return nil
		}
		if i == 0 || !store.IsFault(one) {
			err = one
		}
	}
	return err
}

// verbs are the calls on one key.
var verbs = map[tenure.Verb]bool{
	tenure.Acquire: true, tenure.Renew: true, tenure.Report: true, tenure.Checkpoint: true, tenure.Release: true,
	tenure.Takeover: true, tenure.Reserve: true, tenure.Revoke: true,
}

// maxWait is the longest wait of an acquire.
const maxWait = time.Hour

// lease answers POST /v1/leases/{key}/VERB: one request.
func (s *Server) lease(c *call, verb tenure.Verb) error {
	key, err := c.key()
	if err != nil {
		return err
	}
	body, err := c.body()
	if err != nil {
		return err
	}
	q, wait, err := wire.ReadCall(body, verb, key)
	if err != nil {
		return err
	}
	if wait < 0 || wait > maxWait {
		return refuse(wire.NewProblem(wire.Invalid, "wait: it must be between 0s and %s", maxWait))
	}
	if p := s.admit(c.id, &q); p != nil {
		s.audit(c, q, refuse(*p))
		return refuse(*p)
	}
	c.told.Requests = 1
	a, err := s.ask(c.Context(), q)
	if err == nil && wait > 0 && errors.Is(a.Err, tenure.ErrHeld) {
		a, err = s.wait(c, q, a, wait)
	}
	if err != nil {
		return err
	}
	s.audit(c, q, a.Err)
	if a = s.conceal(c.id, key, a); a.Err != nil {
		return a.Err
	}
	a.Sign(s.o.SignKey, q)
	c.send(http.StatusOK, wire.JSON, wire.Lease(a))
	return nil
}

// ask sends one request to the store. The error is the server's own.
func (s *Server) ask(ctx context.Context, q tenure.Request) (store.Answer, error) {
	answers, err := s.batcher.apply(ctx, []tenure.Request{q})
	if err != nil {
		return store.Answer{}, err
	}
	return answers[0], nil
}

// wait asks again until the key is free or the wait is over. If the connection
// breaks, the client asks again with the same secret: if the key was granted
// meanwhile, it gets the same answer.
func (s *Server) wait(c *call, q tenure.Request, a store.Answer, wait time.Duration) (store.Answer, error) {
	leave, ok := s.enterStream(c.id)
	if !ok {
		return a, busy("waiting calls")
	}
	defer leave()
	c.slot() // a call that waits costs little
	proven, end := c.lasting()
	defer end()
	over, cancel := context.WithTimeout(proven, wait)
	defer cancel()
	defer s.waiters.enter(q.Key)()
	hints := s.hints(over, q.Key)
	if hints != nil {
		// The key may have been freed before the watch began.
		var err error
		if a, err = s.ask(c.Context(), q); err != nil {
			return a, err
		}
	}
	for {
		var held *tenure.HeldError
		if !errors.As(a.Err, &held) || over.Err() != nil || !mayEnd(held, wait) {
			return a, nil
		}
		pause := poll(hints != nil)
		if left := held.Remaining(); left >= 0 { // some stores free a key some time after its deadline
			pause = min(max(left, 10*time.Millisecond), pause)
		}
		timer := time.NewTimer(pause)
		select {
		case _, open := <-hints:
			if !open {
				hints = nil
			}
		case <-timer.C:
		case <-over.Done():
		case <-s.life.Done():
			timer.Stop()
			return a, refuse(wire.NewProblem(wire.Busy, "the server stops; ask again with the same secret"))
		}
		timer.Stop()
		var err error
		if a, err = s.ask(c.Context(), q); err != nil {
			return a, err
		}
	}
}

// mayEnd reports whether waiting can help. Holds and periods end only at their
// time.
func mayEnd(held *tenure.HeldError, wait time.Duration) bool {
	return held.Why == tenure.WhyHeld || held.Why == tenure.WhyReserved || held.Remaining() <= wait
}

// poll is how long a waiting acquire relies on hints, or does without.
func poll(hinted bool) time.Duration {
	if hinted {
		return 5 * time.Second
	}
	return 500*time.Millisecond + rand.N(500*time.Millisecond)
}

// hints returns the store's hints about a key, or nil if it gives none.
func (s *Server) hints(ctx context.Context, key string) <-chan struct{} {
	w, ok := s.st.(store.Watcher)
	if !ok || fence.CheckKey(key) != nil {
		return nil
	}
	hints, err := w.Watch(ctx, key)
	if err != nil {
		return nil
	}
	return hints
}
