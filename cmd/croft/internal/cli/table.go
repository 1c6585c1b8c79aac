package cli

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/croft-dev/croft/internal/glance"
)

// Table prints aligned columns. On a terminal it cuts the last column to fit.
// Elsewhere it prints everything.
type Table struct {
	W     io.Writer
	Head  []string
	Rows  [][]Cell
	Style Palette
	Whole bool // cut nothing
	Room  int  // the width; 0 is that of the terminal
}

// Cell is one entry of a table. Its colour is used on terminals.
type Cell struct {
	Text   string
	Colour Colour
}

// Table begins a table on standard output.
func (a *App) Table(head ...string) *Table {
	return &Table{W: a.Stdout, Head: head, Style: a.Palette()}
}

// Row adds a row.
func (t *Table) Row(cells ...Cell) { t.Rows = append(t.Rows, cells) }

// PlainCell is a cell without a colour.
func PlainCell(text string) Cell { return Cell{Text: text} }

// Flush prints the table.
func (t *Table) Flush() {
	columns := make([]int, len(t.Head))
	head := make([]Cell, len(t.Head))
	for i, h := range t.Head {
		columns[i], head[i] = Width(h), Cell{h, Faint}
	}
	for _, r := range t.Rows {
		for i, c := range r {
			columns[i] = max(columns[i], Width(c.Text))
		}
	}
	room, isTerminal := TerminalWidth(t.W)
	if t.Room > 0 {
		room, isTerminal = t.Room, true
	}
	out := bufio.NewWriter(t.W)
	for _, r := range append([][]Cell{head}, t.Rows...) {
		var b strings.Builder
		used := 0
		for i, c := range r {
			if i == len(r)-1 {
				if isTerminal && !t.Whole && room-used > 8 {
					c.Text = Cut(c.Text, room-used)
				}
				b.WriteString(t.Style.Paint(c.Colour, c.Text))
				break
			}
			b.WriteString(t.Style.Paint(c.Colour, c.Text))
			b.WriteString(strings.Repeat(" ", columns[i]-Width(c.Text)+2))
			used += columns[i] + 2
		}
		fmt.Fprintln(out, strings.TrimRight(b.String(), " "))
	}
	_ = out.Flush() // the sink remembers a failed write
}

// Colour is a terminal's escape sequence.
type Colour string

// These are the colours. ResetColour ends one.
const (
	Uncoloured  Colour = ""
	Red         Colour = "\x1b[31m"
	Green       Colour = "\x1b[32m"
	Yellow      Colour = "\x1b[33m"
	Bold        Colour = "\x1b[1m"
	Faint       Colour = "\x1b[2m"
	ResetColour        = "\x1b[0m"
)

// Palette colours text if it is true. It is true on a terminal, unless the user
// turned colours off with NO_COLOR (no-color.org) or TERM=dumb.
type Palette bool

// Palette is the palette of standard output.
func (a *App) Palette() Palette {
	_, isTerminal := TerminalWidth(a.Stdout)
	return Palette(isTerminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb")
}

// Paint colours text.
func (p Palette) Paint(c Colour, text string) string {
	if !p || c == Uncoloured || text == "" {
		return text
	}
	return string(c) + text + ResetColour
}

// Short is a duration for people, in at most two units.
func Short(d time.Duration) string { return glance.Short(d) }

// Ago is how long before now t was, or how far ahead it lies.
func Ago(now, t time.Time) string {
	switch d := now.Sub(t); {
	case t.IsZero():
		return "never"
	case d < 0:
		return "in " + Short(-d)
	default:
		return Short(d) + " ago"
	}
}

// Since is how long before now t was. A t that lies ahead was just now: a
// clock of whole seconds lags behind the times that the store has written.
func Since(now, t time.Time) string {
	if t.After(now) {
		t = now
	}
	return Ago(now, t)
}

// ClockTime is a moment in the local time zone, with its day unless it is
// today.
func ClockTime(now, t time.Time) string {
	t, now = t.Local(), now.Local()
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}
