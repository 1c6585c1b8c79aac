package main

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/cmd/croft/internal/workcmd"
	"github.com/croft-dev/croft/internal/glance"
	"github.com/croft-dev/croft/store/refusals"
	"github.com/croft-dev/croft/tenure"
)

// statusPart is one list of a group: its rows, how many there are in all, and
// the command that lists the others.
type statusPart struct {
	rows  [][]cli.Cell
	count int
	rest  string
}

// printStatus prints the groups for people.
func (a *app) printStatus(s *status, o statusOptions) {
	w, now, about := s.work, s.now, ""
	if o.prefix != "" {
		about = " " + cli.Word(o.prefix)
	}
	workPart := func(u glance.Urgent[workcmd.GlanceRow], rest string) statusPart {
		p := statusPart{count: u.Count, rest: rest}
		for _, r := range u.First() {
			p.rows = append(p.rows, r.Cells)
		}
		return p
	}
	keys := func(u glance.Urgent[tenure.Record], rest string, last func(tenure.Record) cli.Cell) statusPart {
		p := statusPart{count: u.Count, rest: rest + about}
		for _, rec := range u.First() {
			now := cli.NowFor(rec, now)
			p.rows = append(p.rows, []cli.Cell{
				cli.PlainCell(cli.Word(rec.Key)), cli.PlainCell(cli.Word(rec.Owner)), leftCellOf(rec, now), last(rec),
			})
		}
		return p
	}
	progress := func(rec tenure.Record) cli.Cell {
		row := rowOf(rec, now)
		return row[len(row)-1]
	}
	held := func(rec tenure.Record) cli.Cell {
		return cli.PlainCell(strings.TrimSuffix("since "+cli.Since(now, rec.Acquired)+", "+progress(rec).Text, ", "))
	}
	renewed := func(rec tenure.Record) cli.Cell {
		return cli.PlainCell("heard from " + cli.Since(now, rec.Renewed))
	}

	head := strconv.Itoa(s.held.Count)
	if w.Running > 0 {
		head += fmt.Sprintf(" (running items: %d)", w.Running)
	}
	a.printGroup("held", head, cli.Green, s.held.Count, keys(s.held, "croft ls --state held", held))

	head = counted(s.lapsing.Count+w.Lapsed.Count, w.MoreRunning)
	if s.expired > 0 {
		head += fmt.Sprintf(" (expired: %d)", s.expired)
	}
	a.printGroup("lapsing", head, cli.Red, s.lapsing.Count+w.Lapsed.Count,
		keys(s.lapsing, "croft ls", renewed), workPart(w.Lapsed, "croft work ls --state running"))
	a.printGroup("stalled", counted(s.stalled.Count+w.Stalled.Count, w.MoreRunning), cli.Red,
		s.stalled.Count+w.Stalled.Count,
		keys(s.stalled, "croft ls --state held", progress), workPart(w.Stalled, "croft work ls --state running"))

	sum := refusals.SumUp(s.refused)
	head = counted(sum.Count+w.Refused.Count, w.MoreRefused)
	if sum.Count > 0 {
		head += ", the last " + cli.Since(now, sum.Last)
	}
	refused := statusPart{
		count: len(s.refused), rest: "croft inventory --refusals" + about,
	}
	for _, r := range s.newest() {
		refused.rows = append(refused.rows, []cli.Cell{
			cli.PlainCell(cli.Since(now, r.At)), cli.PlainCell(cli.Word(r.Key)), cli.PlainCell(whose(r.Owner)),
			cli.PlainCell(refusalText(r)),
		})
	}
	a.printGroup("refused", head, cli.Yellow, sum.Count+w.Refused.Count, refused,
		workPart(w.Refused, "croft work refusals"))

	dead := w.Dead.Count + w.Given.Count + w.Stuck.Count
	a.printGroup("dead", counted(dead, w.MoreStuck), cli.Red, dead,
		workPart(w.Dead, "croft work ls --state dead"),
		workPart(w.Stuck, "croft work effects ls --state unknown"),
		workPart(w.Given, "croft work effects ls --state failed"))

	if n := w.Paused.Count; n > 0 {
		a.printGroup("paused", strconv.Itoa(n), cli.Yellow, n, workPart(w.Paused, "croft work queues"))
	}

	faults := s.faults()
	verdict := statusPart{count: len(faults), rest: "croft doctor"}
	for _, f := range faults[:min(len(faults), s.limit)] {
		cells := []cli.Cell{cli.PlainCell(cli.Line(f.Check)), cli.PlainCell(cli.Line(f.Seen))}
		verdict.rows = append(verdict.rows, cells)
	}
	head = verdictText(a.Palette(), verdictOf(s.findings)) + ": " + cli.Line(s.name)
	a.printGroup("store", head, cli.Uncoloured, 0, verdict)
}

// leftCellOf says how much longer a lease lasts, of how long.
func leftCellOf(rec tenure.Record, now time.Time) cli.Cell {
	if !rec.Alive(now) {
		return cli.Cell{Text: "expired " + leftOf(rec, now), Colour: cli.Red}
	}
	c := leftCell(glance.PartLeft(rec, now))
	c.Text = leftOf(rec, now) + " left of " + cli.Short(rec.TTL)
	return c
}

// counted is a count that may have ended early.
func counted(n int, more bool) string {
	if more {
		return fmt.Sprintf("%d or more", n)
	}
	return strconv.Itoa(n)
}

// printGroup prints the head of a group, and its rows. The head has a colour if
// the group has anything in it.
func (a *app) printGroup(name, head string, colour cli.Colour, count int, parts ...statusPart) {
	if count == 0 && colour != cli.Uncoloured {
		colour = cli.Faint
	}
	fmt.Fprintf(a.Stdout, "%-8s %s\n", name, a.Palette().Paint(colour, head))
	const indent = "  "
	width, isTerminal := cli.TerminalWidth(a.Stdout)
	for _, p := range parts {
		if len(p.rows) == 0 {
			continue
		}
		var text bytes.Buffer
		t := &cli.Table{W: &text, Head: make([]string, len(p.rows[0])), Rows: p.rows, Style: a.Palette()}
		if isTerminal {
			t.Room = max(width-len(indent), 1)
		}
		t.Flush()
		for line := range strings.Lines(strings.TrimPrefix(text.String(), "\n")) { // the first line is the empty head
			fmt.Fprint(a.Stdout, indent, line)
		}
		if more := p.count - len(p.rows); more > 0 {
			fmt.Fprintf(a.Stdout, "%sand %d more: %s\n", indent, more, p.rest)
		}
	}
}
