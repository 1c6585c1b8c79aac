package server

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/croft-dev/croft/internal/wait"
	"github.com/croft-dev/croft/internal/wire"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// workClaim answers POST /v1/work/claim: the items that the claim has got. With
// a wait it is a long poll.
//
// A claim goes to the ledger only while its client is there. If the client has
// left when the ledger answers, the server gives the items back, unless the
// client has already asked again here. If it asks later, its claim is like any
// other.
func (s *Server) workClaim(c *call) error {
	body, err := c.body()
	if err != nil {
		return err
	}
	q, wait, err := wire.ReadClaim(body)
	if err != nil {
		return err
	}
	if wait < 0 || wait > maxWait {
		return refuse(wire.NewProblem(wire.Invalid, "wait: it must be between 0s and %s", maxWait))
	}
	if s.o.Access != nil && c.id.Name != "" {
		q.Owner = c.id.Name
	}
	if err := q.Check(); err != nil {
		return err
	}
	slices.Sort(q.Queues)
	q.Queues = slices.Compact(q.Queues)
	for _, queue := range q.Queues {
		if err := s.admitQueue(c.id, Acquire, queue, "claim"); err != nil {
			return err
		}
	}
	c.told.Requests = 1
	mine, err := s.ledger.claims.enter(c.Context(), q)
	if err != nil {
		return err
	}
	defer s.ledger.claims.leave(q, mine)
	items, err := s.claim(c, q)
	if err == nil && len(items) == 0 && wait > 0 {
		items, err = s.waitClaim(c, q, wait, mine.followed)
	}
	s.sign(items)
	gone := c.Context().Err() != nil
	if err == nil && !gone {
		gone = c.deliver(http.StatusOK, wire.JSON, wire.ClaimedItems(items)) != nil
	}
	if gone && len(items) > 0 && s.ledger.claims.abandoned(mine) {
		s.giveBack(c, q, items)
	}
	return err
}

// sign signs the stamps of claimed items, if the server has a key.
func (s *Server) sign(items []wire.Claimed) {
	if s.o.SignKey == nil {
		return
	}
	for i := range items {
		it := &items[i].Item
		it.Signature = s.o.SignKey.Sign(it.Record.Stamp()).Signature
	}
}

// waitClaim claims again until something is ready or the wait is over.
func (s *Server) waitClaim(
	c *call, q work.Claim, wait time.Duration, followed <-chan struct{},
) ([]wire.Claimed, error) {
	leave, ok := s.enterStream(c.id)
	if !ok {
		return nil, busy("waiting calls")
	}
	defer leave()
	c.slot() // a call that waits costs little
	over, cancel := context.WithTimeout(c.Context(), wait)
	defer cancel()
	q.Again = false // there was nothing to get again
	hints, all, err := s.ledger.wake(over, work.Wanted{Queues: q.Queues})
	if err != nil {
		hints, all = nil, false // claiming does without
	}
	for begun := true; ; begun = false {
		// Something may have become ready before the hints began.
		if !begun {
			timer := time.NewTimer(poll(hints != nil && all))
			select {
			case _, open := <-hints:
				if !open {
					hints = nil
				}
			case <-timer.C:
			case <-over.Done():
			case <-followed:
				timer.Stop()
				return nil, refuse(wire.NewProblem(wire.Busy, "the same claim was sent again"))
			case <-s.life.Done():
				timer.Stop()
				return nil, refuse(wire.NewProblem(wire.Busy, "the server stops; ask again with the same secret"))
			}
			timer.Stop()
		}
		items, err := s.claim(c, q)
		if err != nil || len(items) > 0 || over.Err() != nil {
			return items, err
		}
	}
}

// claims are the claims under way in this server, by their owner and secret.
type claims struct {
	mu   sync.Mutex
	call map[claimKey]*claiming // guarded by mu
}

type claimKey struct {
	owner  string
	secret tenure.Secret
}

// claiming is one claim under way.
type claiming struct {
	followed chan struct{} // closed when its client has asked again
	done     chan struct{} // closed when it is over, and all before it are

	next *claiming // the one that followed; guarded by mu
	left bool      // its client left before its turn came; guarded by mu
}

// enter begins a claim. A claim that is sent again first ends the one under
// way, and waits for it. That one gives nothing back, unless the client has
// left again meanwhile.
func (s *claims) enter(ctx context.Context, q work.Claim) (*claiming, error) {
	key := claimKey{q.Owner, q.Secret}
	mine := &claiming{followed: make(chan struct{}), done: make(chan struct{})}
	s.mu.Lock()
	before := s.call[key]
	if s.call == nil {
		s.call = map[claimKey]*claiming{}
	}
	s.call[key] = mine
	follows := before != nil && q.Again
	if follows {
		close(before.followed) // mine has replaced it, so nobody else does
		before.next = mine
	}
	s.mu.Unlock()
	if !follows {
		return mine, nil
	}
	select {
	case <-before.done:
		return mine, nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	mine.left = true
	s.mu.Unlock()
	// A third claim must not overtake the first, which may take items yet.
	go func() {
		<-before.done
		s.leave(q, mine)
	}()
	return nil, store.Unknown(wait.Ended(ctx))
}

// abandoned reports whether the items of a claim are to be given back.
func (s *claims) abandoned(mine *claiming) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for next := mine.next; next != nil; next = next.next {
		if !next.left {
			return false
		}
	}
	return true
}

// leave ends a claim.
func (s *claims) leave(q work.Claim, mine *claiming) {
	key := claimKey{q.Owner, q.Secret}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.call[key] == mine {
		delete(s.call, key)
	}
	close(mine.done)
}

// claim claims items in pieces, so that few long ones are in memory at a time.
func (s *Server) claim(c *call, q work.Claim) (taken []wire.Claimed, err error) {
	leave, err := s.ledger.enter(c)
	if err != nil {
		return nil, err
	}
	defer leave()
	answer := trimmer{left: maxBytes}
	if q.Again {
		if err := s.granted(c, q, &answer); err != nil || len(answer.items) > 0 {
			return answer.items, err
		}
		q.Again = false
	}
	for left := q.Limit; left > 0; {
		if c.Context().Err() != nil {
			err = store.Unknown(wait.Ended(c.Context()))
			break
		}
		q.Limit = min(left, piece)
		// If the client leaves now, the server must know what to give back.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Context()), s.o.CallTimeout)
		var some []work.Item
		some, err = s.ledger.Claim(ctx, q)
		cancel()
		if err != nil {
			break
		}
		for _, it := range some {
			s.ledger.queues.keep(it)
			answer.add(it)
		}
		if left -= len(some); len(some) < q.Limit {
			break
		}
	}
	if err != nil && len(answer.items) > 0 && store.IsFault(err) {
		err = &store.UnknownError{Err: err} // the claim has taken something
	}
	return answer.items, err
}

// granted finds the items that run under the secret of a claim that is sent
// again, and that its owner still has. It reads one item at a time: the ledger
// itself would return all of them at once.
func (s *Server) granted(c *call, q work.Claim, answer *trimmer) error {
	ctx, cancel := context.WithTimeout(c.Context(), s.o.CallTimeout)
	defer cancel()
	var mine []work.Item
	var failed error
	for _, queue := range q.Queues {
		for it, err := range s.ledger.List(ctx, work.Query{
			Queue: queue, States: []work.State{work.Running}, Owner: q.Owner,
		}) {
			switch {
			case err != nil:
				failed = err // of a damaged item, perhaps: others may follow
			case q.Granted(it) && len(mine) < work.MaxClaim:
				mine = append(mine, wire.Slim(it))
			}
		}
	}
	if len(mine) == 0 {
		return failed
	}
	slices.SortFunc(mine, func(a, b work.Item) int {
		if a.Before(b) {
			return -1
		}
		return 1
	})
	for _, it := range mine {
		if answer.left <= 0 {
			answer.items = append(answer.items, wire.Claimed{Item: it, Trimmed: true})
			continue
		}
		it, err := s.ledger.Get(ctx, it.ID)
		if err != nil {
			return store.Unknown(err)
		}
		if q.Granted(it) { // it may have changed hands just now
			answer.add(it)
		}
	}
	return nil
}

// trimmer gathers claimed items. It leaves out the bytes of those that no
// longer fit into the answer. Their clients read them one by one.
type trimmer struct {
	items []wire.Claimed
	left  int // bytes
}

func (t *trimmer) add(it work.Item) {
	it.Record.History, it.Result = nil, nil
	size := len(it.Payload) + len(it.Checkpoint)
	if size > 0 && t.left <= 0 {
		t.items = append(t.items, wire.Claimed{Item: wire.Slim(it), Trimmed: true})
		return
	}
	t.left -= size
	t.items = append(t.items, wire.Claimed{Item: it})
}

// giveBack releases the items of a client that has left before it could be
// told. If that fails, they lapse.
func (s *Server) giveBack(c *call, q work.Claim, items []wire.Claimed) {
	requests := make([]work.Request, len(items))
	for i, it := range items {
		requests[i] = work.Request{Verb: work.Release, ID: it.ID, Token: it.Record.Token, Secret: q.Secret}
	}
	ctx := context.WithoutCancel(c.Context())
	for range 3 {
		answers, err := s.ledger.batcher.apply(ctx, requests)
		for i, a := range answers {
			s.ledger.hints.tell(requests[i], a)
		}
		if err == nil && unanswered(len(answers), func(i int) error { return answers[i].Err }) == nil {
			return
		}
	}
}
