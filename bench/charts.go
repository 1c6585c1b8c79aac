package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/croft-dev/croft/internal/svg"
)

// A chart shows the ratios of one table as bars. Charts are drawn from the page
// itself, not from the report, so that both show the same numbers.
type chart struct {
	file    string // beside the page
	title   string
	against string // "the floor" or "the first"
	rate    bool   // more is better
	bars    []bar
}

// bar is one contender.
type bar struct {
	name, ratio string
	value       float64 // not a number if it was not measured
}

// ratioColumns are the titles of the columns that get a chart.
var ratioColumns = []string{"to the floor", "to the first"}

// scaleMark ends the names of contenders that do less than a lock must do. They
// show the order of magnitude.
const scaleMark = ", for scale"

var chartLink = regexp.MustCompile(`^!\[.*\]\((pictures/bench-[a-z0-9-]+\.svg)\)$`)

// link is the line of a page that shows the table's chart. It is empty if the
// table has no ratios.
func (t *table) link() string {
	for _, c := range t.columns {
		if slices.Contains(ratioColumns, c.title) {
			return fmt.Sprintf("![The column “%s” of the table below, as bars](pictures/bench-%s.svg)", c.title, t.Name)
		}
	}
	return ""
}

// drawCharts draws the charts that a page shows, and removes older ones.
func drawCharts(page string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	all, err := chartsOf(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	old, err := filepath.Glob(filepath.Join(filepath.Dir(page), "pictures", "bench-*.svg"))
	if err != nil {
		return err
	}
	for _, file := range old {
		if err := os.Remove(file); err != nil {
			return err
		}
	}
	for _, c := range all {
		file := filepath.Join(filepath.Dir(page), filepath.FromSlash(c.file))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, c.draw(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// chartsOf reads the charts' numbers from the tables of a page.
func chartsOf(page string) ([]chart, error) {
	var all []chart
	title, column := "", -1
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			title, column = heading, -1
			continue
		}
		if m := chartLink.FindStringSubmatch(line); m != nil {
			all, column = append(all, chart{file: m[1], title: title}), 0
			continue
		}
		if column < 0 || !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|---") {
			continue
		}
		c, cells := &all[len(all)-1], cellsOf(line)
		if column == 0 {
			column = slices.IndexFunc(cells, func(s string) bool { return slices.Contains(ratioColumns, s) })
			if column < 0 {
				return nil, fmt.Errorf("%s: the table has no ratios", title)
			}
			c.against, c.rate = strings.TrimPrefix(cells[column], "to "), strings.Contains(cells[1], "per second")
			continue
		}
		if len(cells) <= column {
			return nil, fmt.Errorf("%s: %q has no ratio", title, line)
		}
		value, err := parseRatio(cells[column])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", title, err)
		}
		c.bars = append(c.bars, bar{cells[0], cells[column], value})
	}
	for _, c := range all {
		if len(c.bars) == 0 {
			return nil, fmt.Errorf("%s: a chart without a table", c.title)
		}
	}
	return all, nil
}

func cellsOf(line string) []string {
	cells := strings.Split(strings.Trim(line, "|"), "|")
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	return cells
}

// parseRatio reads what asRatio has written.
func parseRatio(text string) (float64, error) {
	if text == "–" {
		return math.NaN(), nil
	}
	number, isRatio := strings.CutSuffix(text, "×")
	number, thousands := strings.CutSuffix(number, "k")
	value, err := strconv.ParseFloat(number, 64)
	if !isRatio || err != nil || value < 0 || math.IsInf(value, 0) || math.IsNaN(value) {
		return 0, fmt.Errorf("%q is no ratio", text)
	}
	if thousands {
		value *= 1000
	}
	return value, nil
}

// scale is the ratio at the right end. Contenders that are only there for scale
// do not count: they would make all others short.
func (c *chart) scale() float64 {
	most := 1.0
	for _, b := range c.bars {
		if !strings.HasSuffix(b.name, scaleMark) && b.value > most {
			most = b.value
		}
	}
	return most
}

// draw draws a line of text and a bar for each contender.
func (c *chart) draw() []byte {
	const edge, room = 16.0, svg.Width - 32.0
	what, better := "Time", "shorter is better"
	if c.rate {
		what, better = "Throughput", "longer is better"
	}
	subtitle := fmt.Sprintf("%s, as a multiple of %s: %s", what, c.against, better)
	desc := subtitle + "."
	for _, b := range c.bars {
		desc += fmt.Sprintf(" %s: %s.", b.name, b.ratio)
	}
	p := svg.New(c.title, desc)
	y := edge + 18
	p.Bold(svg.Plain, svg.Title, edge, y, svg.Clip(c.title, svg.Title, room))
	y += 20
	p.Text(svg.Faint, svg.Small, edge, y, svg.Clip(subtitle, svg.Small, room))
	y += 14
	most := c.scale()
	for _, b := range c.bars {
		y += 18
		write, ink := p.Text, svg.Plain
		if strings.HasPrefix(b.name, "croft") {
			write = p.Bold
		}
		name := svg.Clip(b.name, svg.Body, room-svg.Measure(b.ratio, svg.Body)-10)
		write(ink, svg.Body, edge, y, name)
		p.Right(ink, svg.Body, edge+room, y, b.ratio)
		y += 6
		b.draw(p, edge, y, room, most)
		y += 20
	}
	return p.Bytes(y + 6)
}

// draw draws one bar: blue for Croft, hatched for contenders that are there for
// scale. A bar that is too long for the scale is broken. A tick marks 1.
func (b bar) draw(p *svg.Picture, x, y, room, most float64) {
	const height = 12.0
	if math.IsNaN(b.value) {
		return
	}
	width := max(min(b.value/most, 1)*room, 2)
	switch {
	case strings.HasPrefix(b.name, "croft"):
		p.Bar(svg.One, x, y, width, height)
	case strings.HasSuffix(b.name, scaleMark):
		p.Hatched(svg.Faint, x, y, width, height)
	default:
		p.Bar(svg.Faint, x, y, width, height)
	}
	if b.value > most {
		at := x + room*.9
		p.Line(svg.Paper, 5, "", at-4, y+height+2, at+4, y-2)
	}
	one := x + room/most
	p.Line(svg.Plain, 2, "", one, y-2, one, y+height+2)
}
