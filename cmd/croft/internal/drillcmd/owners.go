package drillcmd

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/internal/drill"
)

// printDrillOwners prints a bar for every term: who held a key when, as the
// store remembers it. All scenes share one time axis.
func (a *app) printDrillOwners(r *drill.Report) {
	end := r.Began
	for _, scene := range r.Scenes {
		for _, t := range scene.Terms {
			end = later(end, t.Finished)
			for _, at := range t.Refused {
				end = later(end, at)
			}
		}
	}
	if !end.After(r.Began) {
		return // the store remembers no owner
	}
	// These are the widths of the columns before the bars. A narrow terminal
	// leaves out the times and the reason of the end.
	const wide, narrow = 74, 48
	head, columns := []string{"", "OWNER", "TOKEN", "CAUSE", "FROM", "TO", "ENDED"}, 48
	if room, isTerminal := cli.TerminalWidth(a.Stdout); isTerminal {
		columns = room - wide
		if columns < 24 {
			head, columns = head[:4], room-narrow
		}
		columns = min(max(columns, 16), 72)
	}
	axis := &timeAxis{from: r.Began, each: end.Sub(r.Began)/time.Duration(columns) + 1, columns: columns}

	fmt.Fprintf(a.Stdout, "\n%s  as the store remembers it; seconds since the start\n",
		a.Palette().Paint(cli.Bold, "owners"))
	t := a.Table(append(head, axis.labels())...)
	for _, scene := range r.Scenes {
		name := scene.Name
		for _, term := range scene.Terms {
			ended := strings.ReplaceAll(string(term.Ended), "_", " ")
			if ended == "" {
				ended = "held"
			}
			since := func(at time.Time) cli.Cell {
				return cli.PlainCell(fmt.Sprintf("%5.2f",
					at.Sub(r.Began).Seconds()))
			}
			row := []cli.Cell{
				cli.PlainCell(name), cli.PlainCell(cli.Word(term.Owner)),
				cli.PlainCell(strconv.FormatInt(int64(term.Token), 10)),
				cli.PlainCell(string(term.Cause)),
				since(term.Acquired), since(term.Finished), cli.PlainCell(ended),
			}[:len(head)]
			t.Row(append(row, cli.PlainCell(axis.bar(term)))...)
			name = ""
		}
	}
	t.Flush()
	fmt.Fprintln(a.Stdout,
		a.Palette().Paint(cli.Faint, "= holds the key   - holds it, but is stopped, cut off or dead   "+
			". is still away, and has lost it   x tries something stale, is refused"))
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// timeAxis maps times to the columns of a line of text.
type timeAxis struct {
	from    time.Time
	each    time.Duration // one column
	columns int
}

func (x *timeAxis) column(t time.Time) int {
	return min(max(int(t.Sub(x.from)/x.each), 0), x.columns-1)
}

// bar draws a term: = held, - held by a worker that was absent, . absent after
// the term, x a refused attempt.
func (x *timeAxis) bar(t drill.Term) string {
	line := []byte(strings.Repeat(" ", x.columns))
	first, last := x.column(t.Acquired), x.column(t.Finished)
	last = max(first, last-1) // its last column belongs to the next owner
	for i := range line {
		middle := x.from.Add(time.Duration(i)*x.each + x.each/2)
		absent, back := false, false
		for _, gone := range t.Absent {
			absent = absent || middle.After(gone.From) && (gone.To.IsZero() || middle.Before(gone.To))
			back = back || !gone.To.IsZero()
		}
		switch holds := i >= first && i <= last; {
		case holds && absent && i > first: // at least for a moment it was present
			line[i] = '-'
		case holds:
			line[i] = '='
		case i > last && absent && back:
			line[i] = '.'
		}
	}
	// A refusal stands after the term, however short the time between.
	for _, at := range t.Refused {
		line[min(max(x.column(at), last+1), x.columns-1)] = 'x'
	}
	return strings.TrimRight(string(line), " ")
}

// labels prints the axis: the number of seconds at regular distances.
func (x *timeAxis) labels() string {
	line := []byte(strings.Repeat(" ", x.columns))
	total := x.each * time.Duration(x.columns)
	var apart time.Duration
	for _, n := range []int{1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200} {
		apart = time.Duration(n) * time.Second
		if total/apart <= time.Duration(x.columns/8) {
			break
		}
	}
	for at := time.Duration(0); at < total; at += apart {
		label := "|" + strconv.Itoa(int(at/time.Second))
		if i := int(at / x.each); i+len(label) <= x.columns {
			copy(line[i:], label)
		}
	}
	return strings.TrimRight(string(line), " ")
}
