package workcmd

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/internal/glance"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/work"
)

// These bound what a glance reads: running items and refusals, which are small,
// and stuck effects, which come with their bodies. It counts no more of each.
const (
	glanceMost   = 1000
	glanceBodies = 100
)

// Glance is what croft status tells of a ledger.
type Glance struct {
	Running int
	Lapsed  glance.Urgent[GlanceRow]
	Stalled glance.Urgent[GlanceRow]
	Refused glance.Urgent[GlanceRow]
	// Dead has the items without another attempt. Given has the effects that
	// were given up. Stuck has those that a dispatcher took and did not settle
	// in time.
	Dead, Given, Stuck glance.Urgent[GlanceRow]
	// Paused has the queues that operators have paused. The newest come first.
	Paused glance.Urgent[GlanceRow]
	// These say that there are more running items, refusals or stuck effects
	// than a glance reads.
	MoreRunning, MoreRefused, MoreStuck bool
}

// GlanceRow is one item, effect or refusal: its cells for people, and its view
// for programs, which is that of the listing.
type GlanceRow struct {
	Cells []cli.Cell
	View  any

	urgency time.Duration // a larger one comes first
}

// GlanceAt reads what croft status tells of a ledger, in eight calls. An item
// is stalled if it has made no progress for stallAfter. A refusal counts if it
// is younger than recent. GlanceAt keeps most rows of each sort.
func GlanceAt(
	ctx context.Context, l work.Ledger, stallAfter, recent time.Duration, most int,
) (*Glance, error) {
	none := glance.Urgent[GlanceRow]{
		Most: most, Order: func(x, y GlanceRow) int { return cmp.Compare(y.urgency, x.urgency) },
	}
	g := &Glance{Lapsed: none, Stalled: none, Refused: none, Dead: none, Given: none, Stuck: none, Paused: none}
	now, err := l.Now(ctx)
	if err != nil {
		return nil, store.Unknown(err)
	}
	for _, read := range []func() error{
		func() error { return g.readRunning(ctx, l, now, stallAfter) },
		func() error { return g.readRefused(ctx, l, now, recent) },
		func() error { return g.readDead(ctx, l, now, most) },
		func() error { return g.readEffects(ctx, l, now, most) },
		func() error { return g.readRules(ctx, l, now) },
		func() error { return g.count(ctx, l) },
	} {
		if err := read(); err != nil {
			return nil, store.Unknown(err)
		}
	}
	return g, nil
}

// readRunning finds the lapsed and the stalled items. The rule for stalled ones
// is that of the reconciler.
func (g *Glance) readRunning(ctx context.Context, l work.Ledger, now time.Time, stallAfter time.Duration) error {
	n := 0
	for it, err := range l.List(ctx, work.Query{States: []work.State{work.Running}, Limit: glanceMost + 1}) {
		if err != nil {
			return err
		}
		if n++; n > glanceMost {
			g.MoreRunning = true
			break
		}
		beat, progress := now.Sub(it.Heartbeat()), now.Sub(it.Progressed())
		row := GlanceRow{View: rowViewOf(it, now)}
		cells := func(what string) []cli.Cell {
			return []cli.Cell{
				cli.PlainCell(string(it.ID)), cli.PlainCell("queue " + cli.Word(it.Queue)),
				cli.PlainCell(cli.Word(it.Record.Owner)), cli.PlainCell(what),
			}
		}
		switch {
		case it.Lapsed(now):
			row.urgency, row.Cells = beat, cells("not heard from for "+cli.Short(max(beat, 0)))
			g.Lapsed.Add(row)
		case progress >= stallAfter:
			row.urgency, row.Cells = progress, cells("no progress for "+cli.Short(max(progress, 0)))
			g.Stalled.Add(row)
		}
	}
	return nil
}

// readRefused finds the refusals of the last period. The newest come first.
func (g *Glance) readRefused(ctx context.Context, l work.Ledger, now time.Time, recent time.Duration) error {
	for r, err := range l.Refusals(ctx, work.RefusalQuery{Since: now.Add(-recent), Limit: glanceMost + 1}) {
		if err != nil {
			return err
		}
		if g.Refused.Count == glanceMost {
			g.MoreRefused = true
			break
		}
		item := string(r.Item)
		if item == "" {
			item = "dispatcher"
		}
		g.Refused.Add(GlanceRow{urgency: r.At.Sub(now), View: refusalViewOf(r), Cells: []cli.Cell{
			cli.PlainCell(cli.Ago(now, r.At)), cli.PlainCell(item), cli.PlainCell(cli.Word(r.PresentedOwner)),
			cli.PlainCell(fmt.Sprintf("%s: %s, newest is %d", r.Verb, r.Why, r.Newest)),
		}})
	}
	return nil
}

// readDead finds the newest dead items.
func (g *Glance) readDead(ctx context.Context, l work.Ledger, now time.Time, most int) error {
	for it, err := range l.List(ctx, work.Query{States: []work.State{work.Dead}, Newest: true, Limit: most}) {
		if err != nil {
			return err
		}
		g.Dead.Add(GlanceRow{urgency: it.Finished.Sub(now), View: rowViewOf(it, now), Cells: []cli.Cell{
			cli.PlainCell(string(it.ID)), cli.PlainCell("queue " + cli.Word(it.Queue)),
			cli.PlainCell("dead " + cli.Ago(now, it.Finished)), cli.PlainCell(firstLine(cli.Line(it.Error))),
		}})
	}
	return nil
}

// readRules finds the queues that are paused.
func (g *Glance) readRules(ctx context.Context, l work.Ledger, now time.Time) error {
	for r, err := range l.Rules(ctx, work.RuleQuery{}) {
		if err != nil {
			return err
		}
		if r.Paused {
			g.Paused.Add(GlanceRow{urgency: r.Changed.Sub(now), View: ruleViewOf(r), Cells: []cli.Cell{
				cli.PlainCell("queue " + ruleName(r)), cli.PlainCell(cli.Word(r.Actor)),
				cli.PlainCell("paused " + cli.Ago(now, r.Changed)), cli.PlainCell(firstLine(cli.Line(r.Note))),
			}})
		}
	}
	return nil
}

// readEffects finds effects that were given up, and stuck ones.
func (g *Glance) readEffects(ctx context.Context, l work.Ledger, now time.Time, most int) error {
	add := func(to *glance.Urgent[GlanceRow], e work.Effect, at time.Time) {
		view := effectViewOf(e)
		view.Body = nil // it may be large, and croft work effects ls has it
		to.Add(GlanceRow{urgency: now.Sub(at), View: view, Cells: []cli.Cell{
			cli.PlainCell(e.EffectID.String()), cli.PlainCell("to " + cli.Word(e.To)),
			cli.PlainCell(string(e.State) + " " + cli.Ago(now, at)), cli.PlainCell(firstLine(cli.Line(e.Error))),
		}})
	}
	failed := work.EffectQuery{States: []work.EffectState{work.Failed}, Limit: min(most, glanceBodies)}
	for e, err := range l.Effects(ctx, failed) {
		if err != nil {
			return err
		}
		add(&g.Given, e, e.Settled)
	}
	for e, err := range l.Effects(ctx, work.EffectQuery{Orphaned: true, Limit: glanceBodies + 1}) {
		if err != nil {
			return err
		}
		if g.Stuck.Count == glanceBodies {
			g.MoreStuck = true
			break
		}
		add(&g.Stuck, e, e.Ready)
	}
	return nil
}

// count takes the ledger's own sums of dead items and failed effects, whose
// lists are short. A list may be a moment older than the sums.
func (g *Glance) count(ctx context.Context, l work.Ledger) error {
	stats, err := l.Stats(ctx, "")
	if err != nil {
		return err
	}
	var dead, given int
	for _, s := range stats {
		g.Running += int(s.Running)
		dead += int(s.Dead)
		given += int(s.Failed)
	}
	g.Dead.Count, g.Given.Count = max(g.Dead.Count, dead), max(g.Given.Count, given)
	return nil
}
