package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/clerk"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// The limits of one call: in requests, and in the bytes that they carry.
const (
	largestWork      = 5000
	largestWorkBytes = 8 << 20
)

// Apply carries out requests. Adds, heartbeats and completions of a whole batch
// take the fast path: one round trip. Other requests take the slow path, and so
// do those that the fast path left over. There the law decides in a transaction
// with the rows locked. An item that another transaction keeps locked is asked
// for alone, and waits for at most LockWait.
func (l *Ledger) Apply(ctx context.Context, requests []work.Request) []work.Answer {
	answers := make([]work.Answer, len(requests))
	todo := clerk.Checked(requests, answers)
	if err := l.usable(ctx); err != nil {
		return clerk.Failed(answers, todo, err)
	}
	for len(todo) > 0 {
		n, size := 0, 0
		for n < len(todo) && n < largestWork && (n == 0 || size < largestWorkBytes) {
			size += weight(requests[todo[n]])
			n++
		}
		l.apply(ctx, requests, answers, todo[:n])
		todo = todo[n:]
	}
	return answers
}

// weight estimates how many bytes a request carries.
func weight(req work.Request) int {
	n := 256 + len(req.Payload) + len(req.Result) + len(req.State)
	for _, e := range req.Effects {
		n += 128 + len(e.Body)
	}
	for _, target := range req.Guards {
		n += len(target)
	}
	return n
}

func (l *Ledger) apply(ctx context.Context, requests []work.Request, answers []work.Answer, todo []int) {
	todo, err := l.fastPath(ctx, requests, answers, todo, true)
	if err == nil && len(todo) > 0 {
		todo, err = l.slowPath(ctx, requests, answers, todo)
	}
	if err != nil {
		clerk.Failed(answers, todo, explainWork(ctx, err))
	}
}

// slowPath carries out requests by the law, in one transaction. If other
// transactions have locked some of the items, each of those is asked for alone.
// So only these requests wait.
//
// An add with an idempotency key may mean any item. Another request of the
// batch may name the same item. So if requests go apart, such an add waits for
// all requests before it, and all requests after it wait for the add.
func (l *Ledger) slowPath(
	ctx context.Context, requests []work.Request, answers []work.Answer, todo []int,
) (left []int, err error) {
	if len(todo) == 1 {
		return todo, l.byLaw(ctx, requests, answers, todo, l.lockWait)
	}
	if err = l.byLaw(ctx, requests, answers, todo, l.briefly()); !isKept(err) {
		return todo, err
	}
	until := time.Now().Add(l.lockWait) // for all parts together
	for len(todo) > 0 {
		n := 1
		for n < len(todo) && hasKey(requests[todo[n]]) == hasKey(requests[todo[0]]) {
			n++
		}
		wait := max(time.Until(until), l.briefly())
		if err := l.aroundLocks(ctx, requests, answers, todo[:n], wait); err != nil {
			return todo, err
		}
		todo = todo[n:]
	}
	return nil, nil
}

// hasKey reports whether a request is an add with an idempotency key.
func hasKey(req work.Request) bool { return req.Verb == work.Add && req.Unique != "" }

// aroundLocks carries out requests while other transactions have locked some of
// the items. The requests are all adds with an idempotency key, or none is. It
// waits for each lock at most wait. An error concerns all requests.
func (l *Ledger) aroundLocks(
	ctx context.Context, requests []work.Request, answers []work.Answer, todo []int, wait time.Duration,
) error {
	blocked, err := l.blocked(ctx, requests, todo)
	if err != nil {
		return err
	}
	var kept, free []int
	for _, i := range todo {
		if blocked[requests[i].ID] {
			kept = append(kept, i)
		} else {
			free = append(free, i)
		}
	}
	if len(free) > 0 && len(kept) > 0 {
		if err = l.byLaw(ctx, requests, answers, free, l.briefly()); err == nil {
			free = nil
		} else if !isKept(err) {
			return err
		}
	}
	// Requests in free had no locked item, but waited: for an idempotency key.
	left := slices.Concat(kept, free)
	slices.Sort(left)
	l.eachAlone(ctx, requests, answers, left, wait)
	return nil
}

// isKept reports whether a call failed because others have locked its rows.
// Such a call has changed nothing.
func isKept(err error) bool { return hasCode(err, lockTimeout) || hasCode(err, deadlock) }

// briefly is how long a batch waits for a row before it goes on without it.
func (l *Ledger) briefly() time.Duration { return min(l.lockWait, 100*time.Millisecond) }

// blocked returns the items of a batch that another transaction has locked now.
func (l *Ledger) blocked(ctx context.Context, requests []work.Request, todo []int) (map[work.ID]bool, error) {
	ids := make([]work.ID, len(todo))
	for n, i := range todo {
		ids[n] = requests[i].ID
	}
	blocked := map[work.ID]bool{}
	err := l.within(ctx, l.lockWait, func(tx *ledgerTx) error {
		clear(blocked)
		rows, err := tx.session.texts(ctx, l.sql.workBlocked, list(ids))
		for _, id := range rows {
			blocked[work.ID(clerk.Plain(id))] = true
		}
		return err
	})
	return blocked, err
}

// byLaw carries out requests in one transaction. It waits for each lock at most
// wait.
func (l *Ledger) byLaw(
	ctx context.Context, requests []work.Request, answers []work.Answer, todo []int, wait time.Duration,
) error {
	return l.within(ctx, wait, func(tx *ledgerTx) error {
		changed, err := clerk.Apply(ctx, tx, requests, answers, todo)
		if err != nil {
			return err
		}
		return tx.tell(ctx, l.sql.workWake, changed)
	})
}

// eachAlone carries out the requests that wait for other transactions. The
// requests of one item, or of one idempotency key, run in their order, in one
// transaction. At most patientCalls transactions run at a time.
func (l *Ledger) eachAlone(
	ctx context.Context, requests []work.Request, answers []work.Answer, todo []int, wait time.Duration,
) {
	var all sync.WaitGroup
	defer all.Wait()
	slots := make(chan struct{}, patientCalls)
	for _, same := range together(requests, todo) {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			if err := l.byLaw(ctx, requests, answers, same, wait); err != nil {
				clerk.Failed(answers, same, explain(ctx, err))
			}
		})
	}
}

// together groups requests that share an item or an idempotency key, in their
// order.
func together(requests []work.Request, todo []int) [][]int {
	group := map[string]*[]int{} // by item, and by key
	var order []*[]int
	for _, i := range todo {
		names := []string{string(requests[i].ID)}
		if hasKey(requests[i]) {
			names = append(names, requests[i].Queue+"\x00"+requests[i].Unique)
		}
		mine := &[]int{i}
		for _, name := range names {
			if other := group[name]; other != nil && other != mine {
				*mine = append(*mine, *other...)
				*other = nil
				for n, g := range group {
					if g == other {
						group[n] = mine
					}
				}
			}
			group[name] = mine
		}
		order = append(order, mine)
	}
	var groups [][]int
	for _, g := range order {
		if len(*g) > 0 {
			slices.Sort(*g)
			groups = append(groups, *g)
		}
	}
	return groups
}

// The JSON that the fast path sends for each request.
type (
	fastAdd struct {
		ID        work.ID     `json:"id"`
		Queue     string      `json:"queue"`
		Unique    *string     `json:"uniq"`
		Priority  int         `json:"priority"`
		Tries     int         `json:"tries"`
		Delay     int64       `json:"delay"`
		NotBefore *int64      `json:"not_before"`
		Payload   clerk.Bytes `json:"payload"`
		Guards    []string    `json:"guards"`
	}
	fastBeat struct {
		ID    work.ID     `json:"id"`
		Token fence.Token `json:"token"`
		Grant fence.Grant `json:"grant_id"`
		TTL   *int64      `json:"ttl"`
	}
	fastDone struct {
		ID      work.ID      `json:"id"`
		Token   fence.Token  `json:"token"`
		Grant   fence.Grant  `json:"grant_id"`
		Result  clerk.Bytes  `json:"result"`
		Effects []fastEffect `json:"effects"`
	}
	fastEffect struct {
		Name       string      `json:"name"`
		To         string      `json:"dest"`
		AtMostOnce bool        `json:"at_most_once"`
		Body       clerk.Bytes `json:"body"`
	}
)

// fastPath sends the requests that can take the fast path. Each must be the
// only request on its item. fastPath returns the requests that are still to be
// carried out. An error concerns all of these. They have not happened, unless
// the error is of unknown outcome.
func (l *Ledger) fastPath(
	ctx context.Context, requests []work.Request, answers []work.Answer, todo []int, adding bool,
) (left []int, err error) {
	once := map[string]int{}
	for _, i := range todo {
		once[string(requests[i].ID)]++
		if requests[i].Unique != "" {
			once[requests[i].Queue+"\x00"+requests[i].Unique]++
		}
	}
	var adds []fastAdd
	var beats []fastBeat
	var dones []fastDone
	fast := map[work.ID]int{} // the requests on the fast path
	// keyed is set once an add with an idempotency key has come. That add may
	// mean any item, so later requests on items must not overtake it.
	keyed := false
	for _, i := range todo {
		req := &requests[i]
		keyed = keyed || req.Verb == work.Add && req.Unique != ""
		if keyed && req.Verb != work.Add {
			continue
		}
		if once[string(req.ID)] > 1 || req.Unique != "" && once[req.Queue+"\x00"+req.Unique] > 1 {
			continue
		}
		switch req.Verb {
		case work.Add:
			y := req.NotBefore.Year()
			if !adding || req.Partition != "" || !req.NotBefore.IsZero() && (y < 1970 || y > 9999) {
				continue
			}
			a := fastAdd{
				ID: req.ID, Queue: req.Queue, Priority: req.Priority, Tries: req.Limit,
				Delay: micro(req.Delay), NotBefore: clerk.Micro(tenure.Time(req.NotBefore)), Payload: req.Payload,
				Guards: req.Named(),
			}
			if a.Tries == 0 {
				a.Tries = work.DefaultTries
			}
			if req.Unique != "" {
				a.Unique = &req.Unique
			}
			adds = append(adds, a)
		case work.Heartbeat:
			b := fastBeat{ID: req.ID, Token: req.Token, Grant: req.Secret.Grant()}
			if ttl := micro(req.TTL); ttl != 0 {
				b.TTL = &ttl
			}
			beats = append(beats, b)
		case work.Complete:
			d := fastDone{ID: req.ID, Token: req.Token, Grant: req.Secret.Grant(), Result: req.Result}
			for _, e := range req.Effects {
				to := e.To
				if to == "" {
					to = e.Name
				}
				d.Effects = append(d.Effects, fastEffect{e.Name, to, e.AtMostOnce, e.Body})
			}
			dones = append(dones, d)
		default:
			continue
		}
		fast[req.ID] = i
	}
	if len(fast) == 0 {
		return todo, nil
	}
	rows, err := l.call(ctx, l.sql.workApply,
		l.setAt(), l.briefly().Milliseconds(), maybe(adds), maybe(beats), maybe(dones))
	if isKept(err) {
		// Nothing has happened. Only adds wait for locks here: another
		// transaction is just adding the same item. Try again without them.
		if len(adds) > 0 && len(adds) < len(fast) {
			return l.fastPath(ctx, requests, answers, todo, false)
		}
		return todo, nil
	}
	if err != nil {
		return todo, err
	}
	for _, text := range rows {
		var row struct {
			clerk.Item
			Now int64 `json:"now"`
		}
		if err := json.Unmarshal([]byte(text), &row); err != nil {
			return todo, fmt.Errorf("the server's answer cannot be read: %.200q: %w", text, err)
		}
		id := work.ID(clerk.Plain(row.ID))
		i, asked := fast[id]
		if !asked {
			return todo, fmt.Errorf("the server answers for item %s, which nobody has asked about", id)
		}
		delete(fast, id)
		answers[i] = fastAnswer(&requests[i], row.Item, fromMicro(row.Now))
	}
	answered := len(rows)
	left = make([]int, 0, len(todo)-answered)
	for _, i := range todo {
		if answers[i].Now.IsZero() {
			left = append(left, i)
		}
	}
	return left, nil
}

// fastAnswer returns the answer to a request that took the fast path.
func fastAnswer(req *work.Request, row clerk.Item, now time.Time) work.Answer {
	a := work.Answer{Now: now, Item: work.Item{
		ID: req.ID, Queue: row.Queue, State: work.Running,
		Attempts: row.Attempts, Limit: row.Tries, Generation: row.Generation,
	}}
	if req.Verb == work.Add {
		limit := req.Limit
		if limit == 0 {
			limit = work.DefaultTries
		}
		a.Item = work.Item{
			ID: req.ID, Queue: req.Queue, Unique: req.Unique, State: work.Waiting,
			Priority: req.Priority, Ready: clerk.Time(&row.Ready), Created: now,
			Limit: limit, Payload: req.Payload, Guards: req.Named(),
		}
		return a
	}
	a.Item.Record = tenure.Record{
		Key: a.Item.Key(), Token: req.Token, Grant: req.Secret.Grant(),
		Owner: row.Owner, Instance: row.Instance, Cause: tenure.Cause(row.Cause),
		State: tenure.Held, Renewed: now, Deadline: clerk.Time(row.Deadline),
	}
	if req.Verb == work.Complete {
		a.Item.State, a.Item.Finished, a.Item.Result = work.Done, now, req.Result
		a.Item.Record.State, a.Item.Record.Ended, a.Item.Record.Deadline = tenure.Free, tenure.EndReleased, now
	}
	if row.TTL != nil {
		a.Item.Record.TTL = time.Duration(*row.TTL) * time.Microsecond
	}
	return a
}
