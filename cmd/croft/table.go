package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// table prints aligned columns. On a terminal it cuts the last column to fit.
// Elsewhere it prints everything.
type table struct {
	w     io.Writer
	head  []string
	rows  [][]cell
	style palette
	whole bool // cut nothing
	room  int  // the width; 0 is that of the terminal
}

// cell is one entry of a table. Its colour is used on terminals.
type cell struct {
	text   string
	colour colour
}

func (a *app) table(head ...string) *table {
	return &table{w: a.stdout, head: head, style: a.palette()}
}

func (t *table) row(cells ...cell) { t.rows = append(t.rows, cells) }

func plainCell(text string) cell { return cell{text: text} }

func (t *table) flush() {
	columns := make([]int, len(t.head))
	head := make([]cell, len(t.head))
	for i, h := range t.head {
		columns[i], head[i] = width(h), cell{h, faint}
	}
	for _, r := range t.rows {
		for i, c := range r {
			columns[i] = max(columns[i], width(c.text))
		}
	}
	room, isTerminal := terminal(t.w)
	if t.room > 0 {
		room, isTerminal = t.room, true
	}
	out := bufio.NewWriter(t.w)
	for _, r := range append([][]cell{head}, t.rows...) {
		var b strings.Builder
		used := 0
		for i, c := range r {
			if i == len(r)-1 {
				if isTerminal && !t.whole && room-used > 8 {
					c.text = cut(c.text, room-used)
				}
				b.WriteString(t.style.paint(c.colour, c.text))
				break
			}
			b.WriteString(t.style.paint(c.colour, c.text))
			b.WriteString(strings.Repeat(" ", columns[i]-width(c.text)+2))
			used += columns[i] + 2
		}
		fmt.Fprintln(out, strings.TrimRight(b.String(), " "))
	}
	_ = out.Flush() // the sink remembers a failed write
}

// colour is a terminal's escape sequence.
type colour string

const (
	uncoloured colour = ""
	red        colour = "\x1b[31m"
	green      colour = "\x1b[32m"
	yellow     colour = "\x1b[33m"
	bold       colour = "\x1b[1m"
	faint      colour = "\x1b[2m"
	reset             = "\x1b[0m"
)

// palette colours text if it is true. It is true on a terminal, unless the user
// turned colours off with NO_COLOR (no-color.org) or TERM=dumb.
type palette bool

func (a *app) palette() palette {
	_, isTerminal := terminal(a.stdout)
	return palette(isTerminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb")
}

func (p palette) paint(c colour, text string) string {
	if !p || c == uncoloured || text == "" {
		return text
	}
	return string(c) + text + reset
}

// short is a duration for people, in at most two units.
func short(d time.Duration) string {
	if d < 0 {
		return "-" + short(-d)
	}
	const day = 24 * time.Hour
	two := func(n time.Duration, unit string, m time.Duration, lesser string) string {
		if m == 0 {
			return fmt.Sprintf("%d%s", n, unit)
		}
		return fmt.Sprintf("%d%s%d%s", n, unit, m, lesser)
	}
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Truncate(100*time.Millisecond).Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return two(d/time.Minute, "m", d%time.Minute/time.Second, "s")
	case d < day:
		return two(d/time.Hour, "h", d%time.Hour/time.Minute, "m")
	}
	return two(d/day, "d", d%day/time.Hour, "h")
}

// ago is how long before now t was, or how far ahead it lies.
func ago(now, t time.Time) string {
	switch d := now.Sub(t); {
	case t.IsZero():
		return "never"
	case d < 0:
		return "in " + short(-d)
	default:
		return short(d) + " ago"
	}
}

// clockTime is a moment in the local time zone, with its day unless it is
// today.
func clockTime(now, t time.Time) string {
	t, now = t.Local(), now.Local()
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}
