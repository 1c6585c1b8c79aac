package clerk

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// Tx is an open transaction of a database. After any error the caller must
// roll it back.
type Tx interface {
	// Now returns the time on the ledger's clock. It is read after the locks
	// are taken.
	Now(ctx context.Context) (time.Time, error)
	// Items locks items until the transaction ends, in the order of their IDs,
	// and reads them: those with one of the IDs, and those with one of the
	// idempotency keys. The payloads are needed only if adding is true: no
	// other law looks at them, and they may be large.
	Items(ctx context.Context, ids []work.ID, uniques []Unique, adding bool) ([]work.Item, Damage, error)
	// Insert writes new items and returns the IDs of those it has written. It
	// leaves out items whose ID or idempotency key another transaction has just
	// used.
	Insert(ctx context.Context, items []work.Item) ([]work.ID, error)
	Update(ctx context.Context, items []work.Item) error
	// Emit writes effects. It leaves effects whose identity exists already as
	// they are.
	Emit(ctx context.Context, effects []work.Effect) error
	Record(ctx context.Context, refusals []work.Refusal) error

	// Marks locks the marks of dispatchers until the transaction ends, in the
	// order of their keys, and reads them. A missing mark is the zero Mark.
	Marks(ctx context.Context, keys []string) (map[string]fence.Mark, error)
	KeepMarks(ctx context.Context, marks map[string]fence.Mark) error
	// Effects locks effects until the transaction ends, in the order of their
	// identities, and reads them without their bodies.
	Effects(ctx context.Context, ids []work.EffectID) ([]work.Effect, error)
	// UpdateEffects writes those columns of effects that may change.
	UpdateEffects(ctx context.Context, effects []work.Effect) error
}

// Unique is an idempotency key and its queue.
type Unique struct{ Queue, Name string }

// runs cuts the requests at the indexes in todo into runs. Within a run, no two
// requests share a name that same returns. So a run can be decided at once.
func runs[T any](todo []int, requests []T, same func(T) []string) [][]int {
	var all [][]int
	seen := map[string]bool{}
	for _, i := range todo {
		names := same(requests[i])
		if len(all) == 0 || slices.ContainsFunc(names, func(name string) bool { return seen[name] }) {
			all = append(all, nil)
			clear(seen)
		}
		for _, name := range names {
			seen[name] = true
		}
		all[len(all)-1] = append(all[len(all)-1], i)
	}
	return all
}

func names(req work.Request) []string {
	all := []string{string(req.ID)}
	if req.Verb == work.Add && req.Unique != "" {
		all = append(all, req.Queue+"\x00"+req.Unique)
	}
	return all
}

// Changed says what a batch has changed that others may wait for.
type Changed struct {
	Queues  []string // that have an item that is ready now
	Effects bool     // whether effects may be due
}

// Apply carries out the requests at the indexes in todo, and sets their
// answers. The caller has checked these requests.
func Apply(
	ctx context.Context, tx Tx, requests []work.Request, answers []work.Answer, todo []int,
) (Changed, error) {
	var changed Changed
	for _, run := range runs(todo, requests, names) {
		// If another transaction adds the same item just now, the second look
		// finds it.
		for looks := 0; len(run) > 0; looks++ {
			if looks == 8 {
				return changed, fmt.Errorf("item %s is being added by others again and again", requests[run[0]].ID)
			}
			left, err := carryOut(ctx, tx, requests, answers, run, &changed)
			if err != nil {
				return changed, err
			}
			run = left
		}
	}
	return changed, nil
}

// carryOut decides and writes one run. It returns the requests to decide again:
// they add an item that another transaction has added meanwhile.
func carryOut(
	ctx context.Context, tx Tx, requests []work.Request, answers []work.Answer, run []int,
	changed *Changed,
) (left []int, err error) {
	var ids []work.ID
	var uniques []Unique
	adding := false
	for _, i := range run {
		ids = append(ids, requests[i].ID)
		adding = adding || requests[i].Verb == work.Add
		if requests[i].Verb == work.Add && requests[i].Unique != "" {
			uniques = append(uniques, Unique{requests[i].Queue, requests[i].Unique})
		}
	}
	found, damage, err := tx.Items(ctx, ids, uniques, adding)
	if err != nil {
		return nil, err
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return nil, err
	}
	now = tenure.Time(now)
	byID, byUnique := map[work.ID]work.Item{}, map[Unique]work.Item{}
	for _, it := range found {
		byID[it.ID] = it
		if it.Unique != "" {
			byUnique[Unique{it.Queue, it.Unique}] = it
		}
	}
	damaged, damagedUnique := map[work.ID]error{}, map[Unique]error{}
	for _, d := range damage {
		damaged[d.Item] = d
		if d.Unique.Name != "" {
			damagedUnique[d.Unique] = d
		}
	}
	var added, updated []work.Item
	adders := map[work.ID]int{}
	var effects []work.Effect
	var refusals []work.Refusal
	for _, i := range run {
		req := requests[i]
		bad := damaged[req.ID]
		if bad == nil && req.Verb == work.Add && req.Unique != "" {
			bad = damagedUnique[Unique{req.Queue, req.Unique}]
		}
		if bad != nil { // decide nothing from a damaged item; the others go on
			answers[i] = work.Answer{Err: store.Unknown(bad)}
			continue
		}
		it, there := byID[req.ID]
		if !there && req.Verb == work.Add && req.Unique != "" {
			it = byUnique[Unique{req.Queue, req.Unique}]
		}
		out, err := work.Apply(it, req, now)
		if out.Changed { // later requests see it: an idempotency key may lead to the same item
			byID[out.Item.ID] = out.Item
			if out.Item.Unique != "" {
				byUnique[Unique{out.Item.Queue, out.Item.Unique}] = out.Item
			}
		}
		answers[i] = work.Answer{Item: out.Item, Repeated: err == nil && !out.Changed, Now: now, Err: err}
		if out.Refusal != nil {
			refusals = append(refusals, *out.Refusal)
		}
		if !out.Changed {
			continue
		}
		effects = append(effects, out.Effects...)
		if req.Verb == work.Add {
			added, adders[req.ID] = append(added, out.Item), i
			continue
		}
		updated = append(updated, out.Item)
		changed.item(out.Item, now)
	}
	if len(added) > 0 {
		written, err := tx.Insert(ctx, added)
		if err != nil {
			return nil, err
		}
		is := map[work.ID]bool{}
		for _, id := range written {
			is[id] = true
		}
		for _, it := range added {
			if is[it.ID] {
				changed.item(it, now)
			} else {
				left = append(left, adders[it.ID])
			}
		}
	}
	if len(updated) > 0 {
		if err := tx.Update(ctx, updated); err != nil {
			return nil, err
		}
	}
	if len(effects) > 0 {
		changed.Effects = true
		if err := tx.Emit(ctx, effects); err != nil {
			return nil, err
		}
	}
	if len(refusals) > 0 {
		return left, tx.Record(ctx, refusals)
	}
	return left, nil
}

func (c *Changed) item(it work.Item, now time.Time) {
	if it.State == work.Waiting && !it.Ready.After(now) && !slices.Contains(c.Queues, it.Queue) {
		c.Queues = append(c.Queues, it.Queue)
	}
}

// Settle carries out the settlements at the indexes in todo, and sets their
// answers. The caller has checked these settlements.
func Settle(
	ctx context.Context, tx Tx, settlements []work.Settlement, answers []work.EffectAnswer, todo []int,
) (Changed, error) {
	var changed Changed
	same := func(s work.Settlement) []string { return []string{s.Effect.String()} }
	for _, run := range runs(todo, settlements, same) {
		var keys []string
		var ids []work.EffectID
		for _, i := range run {
			ids = append(ids, settlements[i].Effect)
			if key := settlements[i].Stamp.Key; key != "" && !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
		slices.SortFunc(keys, strings.Compare)
		marks, err := tx.Marks(ctx, keys)
		if err != nil {
			return changed, err
		}
		found, err := tx.Effects(ctx, ids)
		if err != nil {
			return changed, err
		}
		now, err := tx.Now(ctx)
		if err != nil {
			return changed, err
		}
		now = tenure.Time(now)
		byID := map[work.EffectID]work.Effect{}
		for _, e := range found {
			byID[e.EffectID] = e
		}
		var updated []work.Effect
		var refusals []work.Refusal
		moved := map[string]fence.Mark{}
		for _, i := range run {
			s := settlements[i]
			out, err := work.Settle(byID[s.Effect], marks[s.Stamp.Key], s, now)
			answers[i] = work.EffectAnswer{Effect: out.Effect, Repeated: err == nil && !out.Changed, Now: now, Err: err}
			if out.Refusal != nil {
				refusals = append(refusals, *out.Refusal)
			}
			if err == nil && !s.ByHand() && out.Mark != marks[s.Stamp.Key] {
				marks[s.Stamp.Key], moved[s.Stamp.Key] = out.Mark, out.Mark
			}
			if out.Changed {
				updated = append(updated, out.Effect)
				changed.Effects = changed.Effects || out.Effect.State == work.Pending
			}
		}
		if len(moved) > 0 {
			if err := tx.KeepMarks(ctx, moved); err != nil {
				return changed, err
			}
		}
		if len(updated) > 0 {
			if err := tx.UpdateEffects(ctx, updated); err != nil {
				return changed, err
			}
		}
		if len(refusals) > 0 {
			if err := tx.Record(ctx, refusals); err != nil {
				return changed, err
			}
		}
	}
	return changed, nil
}
