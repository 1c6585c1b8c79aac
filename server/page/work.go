package page

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/glance"
	"github.com/croft-dev/croft/internal/identity"
	"github.com/croft-dev/croft/server"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

const (
	// itemPage is how many items a page shows.
	itemPage = 50
	// maxEffects is how many effects of an item a page shows.
	maxEffects = 100
)

// mayIn reports whether the visitor may do something in a queue. The keys of
// its items begin with its name and a slash, so rules about a queue are rules
// about that prefix. The empty name stands for all queues together.
func (p *Page) mayIn(v *visit, verb server.Verb, queue string) bool {
	if queue == "" {
		return p.may(v, verb, "")
	}
	return p.may(v, verb, queue+"/")
}

// readable returns the queues that the visitor may read, or the empty name if
// these are all. Asking for each of them shows nothing of the others, whose
// items could otherwise fill a bounded listing.
func (p *Page) readable(v *visit, stats []work.Stats) (queues []string) {
	if p.mayIn(v, server.Read, "") {
		return []string{""}
	}
	for _, s := range stats {
		if p.mayIn(v, server.Read, s.Queue) && len(queues) < maxRows {
			queues = append(queues, s.Queue)
		}
	}
	return queues
}

// readableIn is readable for a listing of one queue, or of all.
func (p *Page) readableIn(ctx context.Context, v *visit, queue string) ([]string, error) {
	switch {
	case queue != "" && !p.mayIn(v, server.Read, queue):
		return nil, nil
	case queue != "" || p.mayIn(v, server.Read, ""):
		return []string{queue}, nil
	}
	stats, err := p.o.Ledger.Stats(ctx, "")
	return p.readable(v, stats), err
}

// itemCounts are the counts of the queues that the visitor may read.
type itemCounts struct{ Running, Lapsed, Dead int64 }

func (p *Page) countItems(ctx context.Context, v *visit) (*itemCounts, error) {
	stats, err := p.o.Ledger.Stats(ctx, "")
	if err != nil {
		return nil, err
	}
	var c *itemCounts
	for _, s := range stats {
		if p.mayIn(v, server.Read, s.Queue) {
			if c == nil {
				c = &itemCounts{}
			}
			c.Running, c.Lapsed, c.Dead = c.Running+s.Running, c.Lapsed+s.Lapsed, c.Dead+s.Dead
		}
	}
	return c, nil
}

// queuesData is what the page of queues shows.
type queuesData struct {
	At    time.Time
	Rows  []work.Stats
	More  int
	Rules []ruleRow   // those that restrict claims
	Given []effectRow // effects that were given up, or that hang

	MoreGiven bool
}

func (d *queuesData) now() time.Time { return d.At }

// ruleRow is a rule, and the time of the page.
type ruleRow struct {
	work.Rule
	Now time.Time
}

// queues answers GET work.
func (p *Page) queues(v *visit) error {
	if p.o.Ledger == nil {
		return notThere
	}
	ctx, done, err := p.reading(v)
	if err != nil {
		return err
	}
	defer done()
	d := &queuesData{}
	if d.At, err = p.o.Ledger.Now(ctx); err != nil {
		return p.silent(v, err)
	}
	stats, err := p.o.Ledger.Stats(ctx, "")
	if err != nil {
		return p.silent(v, err)
	}
	for _, s := range stats {
		switch {
		case !p.mayIn(v, server.Read, s.Queue):
		case len(d.Rows) == maxRows:
			d.More++
		default:
			d.Rows = append(d.Rows, s)
		}
	}
	for r, err := range p.o.Ledger.Rules(ctx, work.RuleQuery{}) {
		if err != nil {
			return p.silent(v, err)
		}
		if r.Restricts() && p.mayIn(v, server.Read, r.Queue) && len(d.Rules) < maxRows {
			d.Rules = append(d.Rules, ruleRow{r, d.At})
		}
	}
	for _, queue := range p.readable(v, stats) {
		for _, q := range []work.EffectQuery{
			{States: []work.EffectState{work.Failed}, Queue: queue, Limit: maxEffects},
			{Orphaned: true, Queue: queue, Limit: maxEffects},
		} {
			for e, err := range p.o.Ledger.Effects(ctx, q) {
				if err != nil {
					return p.silent(v, err)
				}
				if d.MoreGiven = len(d.Given) == maxEffects; d.MoreGiven {
					break
				}
				d.Given = append(d.Given, effectRow{e, d.At})
			}
		}
	}
	p.show(v, http.StatusOK, "queues", "Work", d)
	return nil
}

// itemRow is an item in a listing, or on its own page.
type itemRow struct {
	work.Item
	Now                 time.Time
	Word                string // its state
	Dead, Live, Stalled bool
}

func itemRowOf(it work.Item, now time.Time) itemRow {
	row := itemRow{Item: it, Now: now, Word: glance.ItemState(it, now)}
	row.Dead = row.Word == "lapsed" || row.Word == "dead"
	row.Live = row.Word == "running"
	row.Stalled = row.Live && now.Sub(it.Progressed()) >= glance.StallAfter
	return row
}

// effectRow is an effect in a listing.
type effectRow struct {
	work.Effect
	Now time.Time
}

// Orphan reports whether a dispatcher took the effect and died.
func (r effectRow) Orphan() bool { return r.Effect.Orphaned(r.Now) }

// itemsData is what a listing of items shows.
type itemsData struct {
	At           time.Time
	Queue, State string
	States       []work.State
	Rows         []itemRow
	Next         work.ID // the next page begins after it
}

func (d *itemsData) now() time.Time { return d.At }

// items answers GET items: those of a queue, in a state, the newest first.
func (p *Page) items(v *visit) error {
	query := v.URL.Query()
	d := &itemsData{Queue: query.Get("queue"), State: query.Get("state"), States: work.States}
	q := work.Query{Queue: d.Queue, Newest: true, After: work.ID(query.Get("after")), Limit: itemPage + 1}
	if d.State != "" {
		q.States = []work.State{work.State(d.State)}
	}
	if p.o.Ledger == nil || q.Check() != nil {
		return notThere
	}
	ctx, done, err := p.reading(v)
	if err != nil {
		return err
	}
	defer done()
	if d.At, err = p.o.Ledger.Now(ctx); err != nil {
		return p.silent(v, err)
	}
	queues, err := p.readableIn(ctx, v, d.Queue)
	if err != nil {
		return p.silent(v, err)
	}
	for _, q.Queue = range queues {
		for it, err := range p.o.Ledger.List(ctx, q) {
			if err != nil {
				return p.silent(v, err)
			}
			d.Rows = append(d.Rows, itemRowOf(it, d.At))
		}
		slices.SortFunc(d.Rows, func(x, y itemRow) int { return cmp.Compare(y.ID, x.ID) })
		d.Rows = slices.Clip(d.Rows[:min(len(d.Rows), itemPage+1)])
	}
	if len(d.Rows) > itemPage {
		d.Rows = d.Rows[:itemPage]
		d.Next = d.Rows[itemPage-1].ID
	}
	p.show(v, http.StatusOK, "items", "Items", d)
	return nil
}

// itemData is what the page of one item shows.
type itemData struct {
	itemRow
	Terms    []termRow
	Line     timeline
	Effects  []effectRow
	More     bool // there are more effects
	Refusals []workRefusalRow
	Acts     bool
	Refused  *problem
	Form     actForm
	Done     string
}

func (d *itemData) now() time.Time { return d.itemRow.Now }

// Row is the item as listings have it.
func (d *itemData) Row() itemRow { return d.itemRow }

// item answers GET item.
func (p *Page) item(v *visit) error {
	return p.showItem(v, work.ID(v.URL.Query().Get("id")), http.StatusOK, &itemData{Done: p.done(v, "item")})
}

// readItem returns an item that the visitor may read.
func (p *Page) readItem(ctx context.Context, v *visit, id work.ID) (work.Item, error) {
	if p.o.Ledger == nil || !id.Valid() {
		return work.Item{}, notThere
	}
	it, err := p.o.Ledger.Get(ctx, id)
	switch {
	case errors.Is(err, work.ErrNotFound), err == nil && !p.mayIn(v, server.Read, it.Queue):
		return work.Item{}, notThere
	case err != nil:
		return work.Item{}, p.silent(v, err)
	}
	return it, nil
}

func (p *Page) showItem(v *visit, id work.ID, status int, d *itemData) error {
	ctx, done, err := p.reading(v)
	if err != nil {
		return err
	}
	defer done()
	it, err := p.readItem(ctx, v, id)
	if err != nil {
		return err
	}
	now, err := p.o.Ledger.Now(ctx)
	if err != nil {
		return p.silent(v, err)
	}
	d.itemRow = itemRowOf(it, now)
	d.Terms, d.Line = termsOf(it.Record, glance.NowFor(it.Record, now))
	for e, err := range p.o.Ledger.Effects(ctx, work.EffectQuery{Item: id, Limit: maxEffects + 1}) {
		if err != nil {
			return p.silent(v, err)
		}
		if d.More = len(d.Effects) == maxEffects; !d.More {
			d.Effects = append(d.Effects, effectRow{e, now})
		}
	}
	if d.Refusals, err = p.refusedWork(ctx, v, id); err != nil {
		return p.silent(v, err)
	}
	d.Acts, d.Form.Named = p.mayIn(v, server.Operate, it.Queue), v.id.Name != ""
	p.show(v, status, "item", "Item "+string(id), d)
	return nil
}

// workRefusalRow is a write that the ledger refused.
type workRefusalRow struct {
	work.Refusal
	Now time.Time
}

// refusedWork reads what the ledger refused, the newest first. id is empty for
// all items. The refusals of a dispatcher belong to no item.
func (p *Page) refusedWork(ctx context.Context, v *visit, id work.ID) (rows []workRefusalRow, err error) {
	now, err := p.o.Ledger.Now(ctx)
	if err != nil {
		return nil, err
	}
	queues := []string{""} // an item's refusals are of its queue
	if id == "" {
		if queues, err = p.readableIn(ctx, v, ""); err != nil {
			return nil, err
		}
	}
	for _, queue := range queues {
		for r, err := range p.o.Ledger.Refusals(ctx, work.RefusalQuery{Item: id, Queue: queue, Limit: maxRefusals}) {
			if err != nil {
				return nil, err
			}
			rows = append(rows, workRefusalRow{r, now})
		}
		slices.SortStableFunc(rows, func(x, y workRefusalRow) int { return y.At.Compare(x.At) })
		rows = rows[:min(len(rows), maxRefusals)]
	}
	return rows, nil
}

// actOnItem answers POST item: replay or requeue.
func (p *Page) actOnItem(v *visit) error {
	f := actForm{
		Verb: v.PostForm.Get("verb"), Note: strings.TrimSpace(v.PostForm.Get("note")),
		Actor: cmp.Or(v.id.Name, strings.TrimSpace(v.PostForm.Get("actor"))),
	}
	id := work.ID(v.PostForm.Get("id"))
	ctx, done, err := p.reading(v)
	if err != nil {
		return err
	}
	it, err := p.readItem(ctx, v, id)
	done()
	if err != nil {
		return err
	}
	q := work.Request{
		Verb: work.Verb(f.Verb), ID: id, Secret: tenure.NewSecret(), Actor: f.Actor, Note: f.Note,
		Instance: identity.Instance(),
	}
	refused := p.checkItemAct(v, it, f)
	if token, err := strconv.ParseInt(v.PostForm.Get("token"), 10, 64); q.Verb == work.Requeue {
		// The reconciler's act has no note: it stays in the audit log.
		q.Token, q.Owner, q.Actor, q.Note = fence.Token(token), f.Actor, "", ""
		if err != nil && refused == nil {
			refused = &problem{http.StatusBadRequest, "An old form", "Open the page of the item again."}
		}
	}
	if refused == nil {
		refused = p.carryOut(v, it, q, f)
	}
	if refused == nil {
		http.Redirect(v.w, v.Request, p.doneURL(v, "item", f.Verb, url.Values{"id": {string(id)}}), http.StatusSeeOther)
		return nil
	}
	return p.showItem(v, id, refused.Status, &itemData{Refused: refused, Form: f})
}

// checkItemAct finds why the visitor cannot do this.
func (p *Page) checkItemAct(v *visit, it work.Item, f actForm) *problem {
	bad := func(why string) *problem { return &problem{http.StatusBadRequest, "Something is missing", why} }
	switch {
	case f.Verb != string(work.Replay) && f.Verb != string(work.Requeue):
		return bad("This page knows no such act.")
	case !p.mayIn(v, server.Operate, it.Queue):
		refused := &problem{http.StatusForbidden, "You may not do this", "Ask the operator of this server."}
		p.audit(v, it, f, refused)
		return refused
	case f.Note == "":
		return bad("Say why: the note stays in the item's history, or in the server's log.")
	case f.Actor == "":
		return bad("Say who you are: the name stays in the item's history.")
	}
	return nil
}

// audit tells the audit log of an act on an item.
func (p *Page) audit(v *visit, it work.Item, f actForm, err error) {
	p.o.Observe(server.Event{
		Kind: server.Acted, Identity: v.id.Name, Remote: v.RemoteAddr, Act: tenure.Verb(f.Verb), Key: it.Key(),
		Actor: f.Actor, Note: f.Note, Err: err,
	})
}

// carryOut sends an act to the ledger, raises the fence in the ledger's own
// place, and tells the audit log.
func (p *Page) carryOut(v *visit, it work.Item, q work.Request, f actForm) *problem {
	ctx, cancel := context.WithTimeout(v.Context(), readWithin)
	defer cancel()
	err := q.Check()
	if err == nil {
		err = work.Act(ctx, p.o.Ledger, []work.Request{q}, nil)[0].Err
	}
	p.audit(v, it, f, err)
	var state *work.StateError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, work.ErrUnfenced):
		return &problem{
			http.StatusBadGateway, "Done, but not fenced",
			"The act was done. The fence is not up at a guard that the item names, so that guard may still admit the " +
				"old owner's writes: raise it with croft guard raise.",
		}
	case errors.Is(err, work.ErrUnknown):
		return &problem{
			http.StatusServiceUnavailable, titles["unknown"],
			"The ledger did not answer. Look at the item before you try again.",
		}
	case errors.As(err, &state), errors.Is(err, work.ErrInvalid):
		return &problem{http.StatusConflict, "Not possible so", err.Error()}
	}
	return &problem{http.StatusConflict, "Somebody was faster", "The item has changed since. Look at it again."}
}
