package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// watchPage is the page that watch shows on a terminal: the keys, and below
// them the latest changes.
type watchPage struct {
	a       *app
	screen  *os.File
	name    string // of the store
	what    string
	message string // the latest message about the store; "" if there is none
	snapshot
	changed []string
}

// These escape sequences enter the terminal's second page, without a cursor,
// and leave it again.
const (
	enterPage = "\x1b[?1049h\x1b[?25l"
	leavePage = "\x1b[?25h\x1b[?1049l"
	topOfPage = "\x1b[H"
	restOfRow = "\x1b[K"
	restBelow = "\x1b[J"
)

// keptChanges is how many changes a page remembers. No terminal has more rows.
const keptChanges = 200

// newWatchPage returns nil if standard output is no terminal that can show a
// page.
func (a *app) newWatchPage() *watchPage {
	f, ok := a.Stdout.W.(*os.File)
	if _, is := cli.TerminalWidth(a.Stdout); !is || !ok || a.JSON || os.Getenv("TERM") == "dumb" ||
		os.Getenv("TERM") == "" {
		return nil
	}
	name, _, _ := a.StoreName()
	return &watchPage{a: a, screen: f, name: store.Redact(name)}
}

func (p *watchPage) begin(what string, first snapshot) {
	p.what = strings.TrimSpace(what)
	fmt.Fprint(p.a.Stdout, enterPage)
	p.update(first, nil)
}

func (p *watchPage) update(now snapshot, changed []change) {
	p.snapshot, p.message = now, now.damage.text(p.a)
	for _, c := range changed {
		p.changed = append(p.changed, changeLine(c, p.a.Palette()))
	}
	p.changed = p.changed[max(0, len(p.changed)-keptChanges):]
	p.draw()
}

func (p *watchPage) say(what string) {
	p.message = what
	p.draw()
}

func (p *watchPage) end() { fmt.Fprint(p.a.Stdout, leavePage) }

// draw writes the page over the old one.
func (p *watchPage) draw() {
	columns, rows, err := term.GetSize(int(p.screen.Fd()))
	if err != nil || columns <= 0 || rows <= 0 {
		columns, rows = 80, 24
	}
	text := strings.ReplaceAll(p.render(columns, rows), "\n", restOfRow+"\r\n")
	fmt.Fprint(p.a.Stdout, topOfPage+text+restOfRow+restBelow)
}

// render is the page for a terminal of this size. It has no newline at its end.
func (p *watchPage) render(columns, rows int) string {
	style := p.a.Palette()
	count := map[string]int{}
	for _, rec := range p.all {
		state, _ := cli.StateOf(rec, p.at)
		count[state]++
	}
	head := fmt.Sprintf("%s  %s: %d, %d held", p.name, p.what, len(p.all), count["held"])
	if n := count["expired"]; n > 0 {
		head += fmt.Sprintf(", %d expired", n)
	}
	refused := 0
	for r := range p.refusals {
		if p.at.Sub(r.At) < time.Hour {
			refused += r.Count
		}
	}
	if refused > 0 {
		head += fmt.Sprintf(", %d refused within the hour", refused)
	}
	head = cli.Cut(fmt.Sprintf("%s  %s", p.at.Local().Format(time.TimeOnly), head), columns)
	page := []string{style.Paint(cli.Bold, head)}
	if p.message != "" {
		page = append(page, style.Paint(cli.Red, cli.Cut(p.message, columns)))
	}
	page = append(page, "")

	// The changes get a third of the page, and more if there are few keys. The
	// keys get the rest.
	room := max(rows-len(page)-1, 4)
	below := min(len(p.changed), max(room/3, room-len(p.all)-2))
	page = append(page, p.keys(columns, room-below-1, style)...)
	if below > 0 {
		page = append(page, "")
		page = append(page, p.changed[len(p.changed)-below:]...)
	}
	page = page[:min(len(page), rows)]
	for i, row := range page {
		page[i] = fit(row, columns)
	}
	return strings.Join(page, "\n")
}

// fit cuts a line that is too long for a row. A cut line loses its colours,
// because they would count as columns.
func fit(text string, columns int) string {
	if bare := uncolour.Replace(text); cli.Width(bare) > columns {
		return cli.Cut(bare, columns)
	}
	return text
}

var uncolour = strings.NewReplacer(string(cli.Red), "", string(cli.Green), "", string(cli.Yellow), "",
	string(cli.Bold), "",
	string(cli.Faint), "", cli.ResetColour, "")

// keys are the rows of keys. Those that need attention come first.
func (p *watchPage) keys(columns, most int, style cli.Palette) []string {
	if len(p.all) == 0 {
		return []string{style.Paint(cli.Faint, "no keys")}
	}
	order := map[string]int{"expired": 0, "held": 1, "reserved": 2, "hold": 3, "period": 4, "free": 5}
	records := slices.SortedFunc(maps.Values(p.all), func(x, y tenure.Record) int {
		sx, _ := cli.StateOf(x, p.at)
		sy, _ := cli.StateOf(y, p.at)
		return cmp.Or(cmp.Compare(order[sx], order[sy]), strings.Compare(x.Key, y.Key))
	})
	var text strings.Builder
	t := &cli.Table{
		W: &text, Head: []string{"KEY", "STATE", "OWNER", "LEFT", "SINCE", "TERMS", "PROGRESS"}, Style: style,
		Room: columns,
	}
	shown := min(len(records), max(most-2, 1))
	for _, rec := range records[:shown] {
		// The cells are key, state, owner, token, left, since, progress.
		row := rowOf(rec, p.at)
		// Cut keys and owners, so that no key takes two rows.
		row[0].Text, row[2].Text = cli.Cut(row[0].Text, max(columns/3, 12)), cli.Cut(row[2].Text, max(columns/5, 10))
		left := row[4]
		if rec.Alive(p.at) && rec.TTL > 0 && rec.Deadline.Sub(p.at) < rec.TTL*3/10 {
			left.Colour = cli.Red
		}
		t.Row(row[0], row[1], row[2], left, row[5], cli.PlainCell(fmt.Sprint(rec.Terms)), row[6])
	}
	t.Flush()
	rows := strings.Split(strings.TrimRight(text.String(), "\n"), "\n")
	if more := len(records) - shown; more > 0 {
		rows = append(rows, style.Paint(cli.Faint, fmt.Sprintf("and %d more", more)))
	}
	return rows
}
