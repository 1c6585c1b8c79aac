package remote

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/wait"
	"github.com/croft-dev/croft/internal/wire"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/work"
)

// Ledger is a ledger of work items behind a Croft server. Its methods are safe
// for concurrent use.
type Ledger struct{ server *Store }

var (
	_ work.Ledger = (*Ledger)(nil)
	_ work.Waker  = (*Ledger)(nil)
	_ guard.Host  = (*Ledger)(nil)
)

// OpenLedger makes a ledger of the server at a URL, as [Open] makes a store. It
// sends nothing. If the server keeps no work items, every call says so, with a
// fault that matches errors.ErrUnsupported. o may be nil.
func OpenLedger(base string, o *Options) (*Ledger, error) {
	s, err := Open(base, o)
	if err != nil {
		return nil, err
	}
	return &Ledger{s}, nil
}

// ask makes a call and reads the whole answer. A server without a ledger has
// changed nothing, and asking it again does not help.
func (l *Ledger) ask(ctx context.Context, method, path string, body []byte, most int64) ([]byte, error) {
	text, err := l.server.ask(ctx, method, path, body, most)
	return text, ofLedger(err)
}

// Guard opens the guard of a file on this server: see [guard.Host].
func (l *Ledger) Guard(ctx context.Context, target string) (guard.Guard, error) {
	return l.server.Guard(ctx, target)
}

// ofLedger makes the error of a ledger from that of a call.
func ofLedger(err error) error {
	var p *problemError
	if errors.As(err, &p) {
		err = &problemError{p.p.LedgerErr(), p.p}
	}
	if errors.Is(err, errors.ErrUnsupported) {
		return store.Fault(err)
	}
	return err
}

// post makes a call and reads its answer with a function. An answer that cannot
// be read leaves the outcome unknown.
func post[T any](
	ctx context.Context, l *Ledger, path string, body []byte, read func([]byte) (T, error),
) (v T, err error) {
	text, err := l.ask(ctx, http.MethodPost, path, body, wire.MaxAnswer)
	if err != nil {
		return v, err
	}
	if v, err = read(text); err != nil {
		var none T
		return none, unread(err)
	}
	return v, nil
}

// Apply sends requests to the server, as a rule in one call. Long ones go
// alone.
func (l *Ledger) Apply(ctx context.Context, requests []work.Request) []work.Answer {
	return batched(ctx, l, "/v1/work/apply", requests, wire.WorkBatches, wire.ReadWorkAnswers,
		func(err error) work.Answer { return work.Answer{Err: err} })
}

// batched sends the valid ones of these requests, in as few calls as their
// length allows. It returns an answer to each request, by failed if there is
// none.
func batched[Q interface{ Check() error }, A any](
	ctx context.Context, l *Ledger, path string, requests []Q,
	bodies func([]Q) ([][]byte, []int), read func([]byte, []Q) ([]A, error), failed func(error) A,
) []A {
	answers := make([]A, len(requests))
	good, index := sound(requests, func(i int, err error) { answers[i] = failed(err) })
	all, sizes := bodies(good)
	for i, body := range all {
		some := good[:sizes[i]]
		got, err := post(ctx, l, path, body, func(text []byte) ([]A, error) { return read(text, some) })
		for k := range some {
			if err != nil {
				answers[index[k]] = failed(err)
			} else {
				answers[index[k]] = got[k]
			}
		}
		good, index = good[sizes[i]:], index[sizes[i]:]
	}
	return answers
}

// sound returns those that are valid, with their indexes. It tells the errors
// of the others.
func sound[Q interface{ Check() error }](all []Q, bad func(i int, err error)) (good []Q, index []int) {
	for i, q := range all {
		if err := q.Check(); err != nil {
			bad(i, err)
			continue
		}
		good, index = append(good, q), append(index, i)
	}
	return good, index
}

// Claim takes items. Those that are long together come one by one.
func (l *Ledger) Claim(ctx context.Context, c work.Claim) ([]work.Item, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	got, err := post(ctx, l, "/v1/work/claim", wire.Claim(c), func(text []byte) ([]wire.Claimed, error) {
		items, err := wire.ReadClaimed(text)
		for _, it := range items {
			if err == nil && !c.Granted(it.Item) {
				err = errors.New("it has an item of another claim")
			}
		}
		if err == nil && !c.Again && len(items) > c.Limit {
			err = fmt.Errorf("it has %d items, and %d were claimed", len(items), c.Limit)
		}
		return items, err
	})
	if err != nil {
		return nil, err
	}
	var items []work.Item
	for _, each := range got {
		it := each.Item
		if each.Trimmed {
			whole, err := l.Get(ctx, it.ID)
			switch {
			case errors.Is(err, work.ErrNotFound):
				continue // forgotten, so it is nobody's
			case err != nil:
				return nil, store.Unknown(err)
			case !c.Granted(whole):
				continue // it has changed hands
			}
			if whole.Record.Token == it.Record.Token {
				whole.Signature = it.Signature
			}
			it = whole
		}
		items = append(items, it)
	}
	return items, nil
}

// Get returns an item with everything.
func (l *Ledger) Get(ctx context.Context, id work.ID) (work.Item, error) {
	if err := id.Check(); err != nil {
		return work.Item{}, err
	}
	text, err := l.ask(ctx, http.MethodGet, "/v1/work/items/"+string(id), nil, wire.MaxItem)
	if err != nil {
		return work.Item{}, err
	}
	it, err := wire.ReadItem(text)
	if err == nil && it.ID != id {
		err = errors.New("it is about another item")
	}
	if err != nil {
		return work.Item{}, unread(err)
	}
	return it, nil
}

// Take takes effects. The server gives fewer than asked for if their bodies are
// long together.
func (l *Ledger) Take(ctx context.Context, q work.Taking) ([]work.Effect, error) {
	if err := q.Check(); err != nil {
		return nil, err
	}
	return post(ctx, l, "/v1/work/take", wire.Taking(q), func(text []byte) ([]work.Effect, error) {
		return wire.ReadEffects(text, q)
	})
}

// Settle sends settlements, as a rule in one call.
func (l *Ledger) Settle(ctx context.Context, settlements []work.Settlement) []work.EffectAnswer {
	return batched(ctx, l, "/v1/work/settle", settlements, wire.SettleBatches, wire.ReadEffectAnswers,
		func(err error) work.EffectAnswer { return work.EffectAnswer{Err: err} })
}

// List yields the items that match, as far as the server shows them.
func (l *Ledger) List(ctx context.Context, q work.Query) iter.Seq2[work.Item, error] {
	v := url.Values{}
	set(v, "queue", q.Queue)
	set(v, "owner", q.Owner)
	set(v, "after", string(q.After))
	setLimit(v, q.Limit)
	for _, state := range q.States {
		v.Add("state", string(state))
	}
	if q.Newest {
		v.Set("newest", "true")
	}
	return listing(ctx, l, "/v1/work/items", v, q.Limit, q.Check(), wire.ReadItemLine)
}

// Effects yields the effects that match, as far as the server shows them.
func (l *Ledger) Effects(ctx context.Context, q work.EffectQuery) iter.Seq2[work.Effect, error] {
	v := url.Values{}
	set(v, "item", string(q.Item))
	set(v, "queue", q.Queue)
	setLimit(v, q.Limit)
	for _, state := range q.States {
		v.Add("state", string(state))
	}
	if q.Orphaned {
		v.Set("orphaned", "true")
	}
	if q.After != (work.EffectID{}) {
		v.Set("after", q.After.String())
	}
	return listing(ctx, l, "/v1/work/effects", v, q.Limit, q.Check(), wire.ReadEffectLine)
}

// Refusals yields the refusals that match, as far as the server shows them.
func (l *Ledger) Refusals(ctx context.Context, q work.RefusalQuery) iter.Seq2[work.Refusal, error] {
	v := url.Values{}
	set(v, "item", string(q.Item))
	set(v, "queue", q.Queue)
	setLimit(v, q.Limit)
	if !q.Since.IsZero() {
		v.Set("since", q.Since.UTC().Format(time.RFC3339Nano))
	}
	return listing(ctx, l, "/v1/work/refusals", v, q.Limit, q.Check(), wire.ReadRefusalLine)
}

// maxStats bounds the queues of one answer. They are gathered in memory.
const maxStats = 1 << 18

// Stats counts items by queue, as far as the server shows the queues.
func (l *Ledger) Stats(ctx context.Context, queue string) (all []work.Stats, err error) {
	v := url.Values{}
	set(v, "queue", queue)
	most := maxStats
	if queue != "" {
		most = 1
	}
	bad := work.Query{Queue: queue}.Check()
	for s, err := range listing(ctx, l, "/v1/work/stats", v, most+1, bad, wire.ReadStatsLine) {
		if err != nil {
			return nil, err
		}
		if all = append(all, s); len(all) > most {
			return nil, unread(fmt.Errorf("it has more than %d queues", most))
		}
	}
	return all, nil
}

func set(v url.Values, name, value string) {
	if value != "" {
		v.Set(name, value)
	}
}

func setLimit(v url.Values, limit int) {
	if limit > 0 {
		v.Set("limit", strconv.Itoa(limit))
	}
}

// listing yields the lines of a listing, and no more than limit of them, unless
// that is 0. bad is the error of its query.
func listing[T any](
	ctx context.Context, l *Ledger, path string, v url.Values, limit int, bad error,
	read func([]byte) (T, error),
) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		if bad != nil {
			yield(none, bad)
			return
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		if len(v) > 0 {
			path += "?" + v.Encode()
		}
		resp, err := l.server.open(ctx, path)
		if err != nil {
			yield(none, ofLedger(err))
			return
		}
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(nil, wire.MaxLine)
		n := 0
		for lines.Scan() {
			one, err := read(lines.Bytes())
			if err == nil {
				if n++; limit > 0 && n > limit {
					return // the server has lost count
				}
			}
			if err == nil && ctx.Err() != nil {
				one, err = none, store.Unknown(wait.Ended(ctx))
			}
			// One value may be damaged. The others follow.
			if !yield(one, err) || ctx.Err() != nil || errors.Is(err, wire.ErrLine) {
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield(none, l.server.failure(ctx, err))
		}
	}
}

// Govern changes the rule of a queue.
func (l *Ledger) Govern(ctx context.Context, c work.RuleChange) (work.Rule, error) {
	if err := c.Check(); err != nil {
		return work.Rule{}, err
	}
	return post(ctx, l, "/v1/work/rules", wire.RuleChange(c), func(text []byte) (work.Rule, error) {
		r, err := wire.ReadRule(text)
		if err == nil && (r.Queue != c.Queue || r.Partition != c.Partition) {
			err = errors.New("it is about another queue or partition")
		}
		return r, err
	})
}

// Rules yields the rules that match, as far as the server shows them.
func (l *Ledger) Rules(ctx context.Context, q work.RuleQuery) iter.Seq2[work.Rule, error] {
	v := url.Values{}
	set(v, "queue", q.Queue)
	setLimit(v, q.Limit)
	return listing(ctx, l, "/v1/work/rules", v, q.Limit, q.Check(), wire.ReadRuleLine)
}

// Prune forgets what the retention no longer keeps.
func (l *Ledger) Prune(ctx context.Context, r work.Retention, limit int) (work.Pruned, error) {
	if _, err := r.Pruning(limit); err != nil {
		return work.Pruned{}, err
	}
	return post(ctx, l, "/v1/work/prune", wire.Prune(r, limit), wire.ReadPruned)
}

// Now returns the time of the clock of the ledger behind the server.
func (l *Ledger) Now(ctx context.Context) (time.Time, error) {
	text, err := l.ask(ctx, http.MethodGet, "/v1/work/now", nil, wire.MaxLine)
	if err != nil {
		return time.Time{}, err
	}
	now, err := wire.ReadMoment(text)
	if err == nil && now.IsZero() {
		err = errors.New("it names no time")
	}
	if err != nil {
		return time.Time{}, unread(err)
	}
	return now, nil
}

// Wake wakes workers, if the ledger behind the server can.
func (l *Ledger) Wake(ctx context.Context, w work.Wanted) (<-chan struct{}, error) {
	v := url.Values{"queue": w.Queues}
	if w.Effects {
		v.Set("effects", "true")
	}
	resp, err := l.server.open(ctx, "/v1/work/wake?"+v.Encode()) //nolint:bodyclose // events closes it
	if err != nil {
		return nil, ofLedger(err)
	}
	return hints(ctx, resp.Body, "ready"), nil
}

// Close ends all calls and hints. It gives no item back.
func (l *Ledger) Close() error { return l.server.Close() }
