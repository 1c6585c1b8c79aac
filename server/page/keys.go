package page

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/glance"
	"github.com/croft-dev/croft/server"
	"github.com/croft-dev/croft/store/refusals"
	"github.com/croft-dev/croft/tenure"
)

const (
	// maxRows is how many keys or items a page shows.
	maxRows = 200
	// recentRefusals is how old the refusals are that the first page counts.
	recentRefusals = 24 * time.Hour
	// maxRefusals is how many refusals a page shows.
	maxRefusals = 200
)

// keyRow is a key in a listing, or on its own page.
type keyRow struct {
	tenure.Record
	Now                    time.Time // the store's
	State                  string    // in one word
	Dead, Lapsing, Stalled bool
}

func rowOf(rec tenure.Record, now time.Time) keyRow {
	now = glance.NowFor(rec, now)
	row := keyRow{Record: rec, Now: now, State: glance.StateOf(rec, now)}
	row.Dead = row.State == "expired"
	if row.State == "held" {
		row.Lapsing, row.Stalled = glance.Lapsing(rec, now), glance.Stalled(rec, now, glance.StallAfter)
	}
	return row
}

// Free is when a key that is kept from everybody is free.
func (r keyRow) Free() time.Time {
	if r.State == "hold" {
		return r.HoldUntil
	}
	return r.Due(r.Every)
}

// LeftMs is how long the lease has left, and LowMark when that is little.
func (r keyRow) LeftMs() int64  { return max(r.Deadline.Sub(r.Now), 0).Milliseconds() }
func (r keyRow) LowMark() int64 { return r.TTL.Milliseconds() / 3 }

// CheckpointBytes is the checkpoint as it was saved.
func (r keyRow) CheckpointBytes() []byte { return []byte(r.Checkpoint) }

// urgency orders rows: those that need a person come first.
func (r keyRow) urgency() int {
	switch {
	case r.Dead:
		return 0
	case r.Stalled:
		return 1
	case r.Lapsing:
		return 2
	case r.State == "held":
		return 3
	case r.State == "reserved":
		return 4
	case r.State == "free":
		return 6
	}
	return 5
}

// overviewData is what the first page shows.
type overviewData struct {
	At             time.Time
	Prefix, Show   string
	Held, Free     int
	Dead           int // expired: the owner was not heard from
	Lapsing        int
	Stalled        int
	Rows           glance.Urgent[keyRow]
	Partial        bool // the listing took too long, or has a damaged record
	Refused        int
	Refusals       []refusalRow
	Items          *itemCounts
	Operator       bool // of all keys
	Store, Verdict string
}

func (d *overviewData) now() time.Time { return d.At }

// More is how many keys of the listing are not shown.
func (d *overviewData) More() int { return d.Rows.Count - len(d.Rows.First()) }

// overview answers GET /ui/: the keys that begin with a prefix.
func (p *Page) overview(v *visit) error {
	query := v.URL.Query()
	d := &overviewData{Prefix: query.Get("prefix"), Show: query.Get("show"), Operator: p.may(v, server.Operate, "")}
	if !validPrefix(d.Prefix) {
		return badPrefix
	}
	ctx, done, err := p.reading(v)
	if err != nil {
		return err
	}
	defer done()
	if d.At, err = p.st.Now(ctx); err != nil {
		return p.silent(v, err)
	}
	d.Rows = glance.Urgent[keyRow]{Most: maxRows, Order: func(x, y keyRow) int {
		if order := cmp.Compare(x.urgency(), y.urgency()); order != 0 {
			return order
		}
		if x.Dead { // the latest first
			return cmp.Or(y.Deadline.Compare(x.Deadline), strings.Compare(x.Key, y.Key))
		}
		return strings.Compare(x.Key, y.Key)
	}}
	for rec, err := range p.st.List(ctx, d.Prefix) {
		if err != nil {
			if d.Held+d.Free+d.Dead == 0 && ctx.Err() == nil {
				return p.silent(v, err)
			}
			_, d.Partial = p.silent(v, err), true
			break
		}
		if !refusals.Reserved(rec.Key) && p.may(v, server.Read, rec.Key) {
			rec.History = nil // the page keeps none of it
			d.add(rowOf(rec, d.At))
		}
	}
	refused, err := p.refused(ctx, v, d.Prefix)
	if err != nil {
		_, d.Partial = p.silent(v, err), true
	}
	for _, r := range refused {
		if d.At.Sub(r.At) < recentRefusals {
			d.Refused += r.Count
		}
	}
	d.Refusals = refusalRows(refused, d.At, 6)
	if p.o.Ledger != nil && d.Prefix == "" {
		if d.Items, err = p.countItems(ctx, v); err != nil {
			_, d.Partial = p.silent(v, err), true
		}
	}
	if d.Operator {
		d.Store = p.o.Store
	}
	p.show(v, http.StatusOK, "overview", "Keys", d)
	return nil
}

// add counts a key, and keeps it if the page shows its sort.
func (d *overviewData) add(row keyRow) {
	switch {
	case row.Dead:
		d.Dead++
	case row.State == "held":
		d.Held++
	default:
		d.Free++
	}
	if row.Lapsing {
		d.Lapsing++
	}
	if row.Stalled {
		d.Stalled++
	}
	shown := row.State != "free"
	switch d.Show {
	case "held":
		shown = row.State == "held"
	case "dead":
		shown = row.Dead
	case "lapsing":
		shown = row.Lapsing
	case "stalled":
		shown = row.Stalled
	case "all":
		shown = true
	}
	if shown {
		d.Rows.Add(row)
	}
}

var badPrefix = &problem{
	http.StatusBadRequest, "No key begins so", "The prefix is too long, or has characters that keys do not have.",
}

// validPrefix reports whether a key can begin so.
func validPrefix(prefix string) bool {
	return len(prefix) <= fence.MaxKey && utf8.ValidString(prefix) && strings.IndexFunc(prefix, unicode.IsControl) < 0
}

// refusalRow is a refusal in a listing.
type refusalRow struct {
	refusals.Refusal
	Now  time.Time
	What string
}

// refused reads the refusals about keys that the visitor may read.
func (p *Page) refused(ctx context.Context, v *visit, prefix string) ([]refusals.Refusal, error) {
	all, err := refusals.Read(ctx, p.st, prefix)
	return slices.DeleteFunc(all, func(r refusals.Refusal) bool { return !p.may(v, server.Read, r.Key) }), err
}

// refusalRows returns the newest refusals first.
func refusalRows(all []refusals.Refusal, now time.Time, most int) []refusalRow {
	var rows []refusalRow
	for i := len(all) - 1; i >= 0 && len(rows) < most; i-- {
		rows = append(rows, refusalRow{all[i], now, glance.Refusal(all[i])})
	}
	return rows
}

// refusalsData is what the page of refusals shows.
type refusalsData struct {
	At     time.Time
	Prefix string
	Rows   []refusalRow
	Count  int
	Work   []workRefusalRow
}

func (d *refusalsData) now() time.Time { return d.At }

// refusals answers GET refusals: the feed of refused writes.
func (p *Page) refusals(v *visit) error {
	d := &refusalsData{Prefix: v.URL.Query().Get("prefix")}
	if !validPrefix(d.Prefix) {
		return badPrefix
	}
	ctx, done, err := p.reading(v)
	if err != nil {
		return err
	}
	defer done()
	if d.At, err = p.st.Now(ctx); err != nil {
		return p.silent(v, err)
	}
	all, err := p.refused(ctx, v, d.Prefix)
	if err := p.rest(v, err); err != nil {
		return err
	}
	d.Rows, d.Count = refusalRows(all, d.At, maxRefusals), len(all)
	if p.o.Ledger != nil && d.Prefix == "" {
		if d.Work, err = p.refusedWork(ctx, v, ""); err != nil {
			return p.silent(v, err)
		}
	}
	p.show(v, http.StatusOK, "refusals", "Refused writes", d)
	return nil
}
