package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// report is the result of a run.
type report struct {
	Machine machine  `json:"machine"`
	Tables  []*table `json:"tables"`
}

// machine has what a reader needs to judge the numbers. It has nothing that
// identifies the machine.
type machine struct {
	Cores     int      `json:"cores"`
	System    string   `json:"system"`
	Go        string   `json:"go"`
	Servers   []string `json:"servers,omitempty"`
	Libraries []string `json:"libraries,omitempty"`
	Rounds    int      `json:"rounds"`
	Load      string   `json:"load_before,omitempty"`
}

// table is the result of one workload.
type table struct {
	Name    string   `json:"name"`
	Title   string   `json:"title"`
	What    string   `json:"what"`
	Rows    []row    `json:"rows"`
	Aims    []aim    `json:"aims,omitempty"`
	Notes   []string `json:"notes,omitempty"`
	columns []column
}

// row is one contender. Times are in nanoseconds. A value that was not measured
// is absent.
type row struct {
	Name   string             `json:"name"`
	Values map[string]float64 `json:"values"`
}

// column is a column of the printed table.
type column struct {
	key, title string
	show       func(float64) string
}

// aim is a ratio that Croft aims at.
type aim struct {
	What    string  `json:"what"`
	Got     float64 `json:"got"`
	Bound   float64 `json:"bound"`
	Least   bool    `json:"at_least"`
	Reached bool    `json:"reached"`
}

func asTime(v float64) string  { return short(time.Duration(v)) }
func asRatio(v float64) string { return digits(v) + "×" }
func asCores(v float64) string { return fmt.Sprintf("%.3f", v) }

// digits formats a number with about three digits.
func digits(v float64) string {
	switch {
	case v >= 10000:
		return fmt.Sprintf("%.1fk", v/1000)
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	case v >= 0.1 || v == 0:
		return fmt.Sprintf("%.2f", v)
	default:
		return fmt.Sprintf("%.2g", v)
	}
}

// newTable begins the table of the current workload.
func (b *bench) newTable() *table {
	return &table{Name: b.title.name, Title: b.title.title, What: b.title.what}
}

// value returns a contender's value in a column, 0 if it was not measured.
func (t *table) value(name, key string) float64 {
	for _, r := range t.Rows {
		if r.Name == name {
			return r.Values[key]
		}
	}
	return 0
}

// rate adds the ratio of every contender to the first.
func (t *table) rate(key, into string) {
	for _, r := range t.Rows {
		if first := t.Rows[0].Values[key]; first > 0 {
			r.Values[into] = r.Values[key] / first
		}
	}
}

func (t *table) atMost(what string, got, bound float64) {
	t.Aims = append(t.Aims, aim{What: what, Got: got, Bound: bound, Reached: got <= bound})
}

func (t *table) atLeast(what string, got, bound float64) {
	t.Aims = append(t.Aims, aim{What: what, Got: got, Bound: bound, Least: true, Reached: got >= bound})
}

func (a aim) String() string {
	than, verdict := "at most", "reached"
	if a.Least {
		than = "at least"
	}
	if !a.Reached {
		verdict = "NOT reached in this run"
	}
	return fmt.Sprintf("%s: %s, the aim is %s %s: %s", a.What, asRatio(a.Got), than, asRatio(a.Bound), verdict)
}

// cells formats a row.
func (t *table) cells(r row) []string {
	cells := []string{r.Name}
	for _, c := range t.columns {
		text := "–"
		if v, measured := r.Values[c.key]; measured {
			text = c.show(v)
		}
		cells = append(cells, text)
	}
	return cells
}

// add prints a table and adds it to the report.
func (b *bench) add(t *table) {
	b.report.Tables = append(b.report.Tables, t)
	b.printf("  %-48s", "")
	for _, c := range t.columns {
		b.printf(" %14s", c.title)
	}
	b.printf("\n")
	for _, r := range t.Rows {
		cells := t.cells(r)
		b.printf("  %-48s", cells[0])
		for _, cell := range cells[1:] {
			b.printf(" %14s", cell)
		}
		b.printf("\n")
	}
	for _, a := range t.Aims {
		b.printf("  %s\n", a)
	}
	for _, note := range t.Notes {
		b.printf("  %s\n", note)
	}
}

// describe fills in the facts about the machine, at the end of a run.
func (b *bench) describe() {
	m := &b.report.Machine
	*m = machine{
		Cores: runtime.NumCPU(), System: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(),
		Rounds: b.rounds, Load: b.load,
	}
	for _, e := range []*engine{b.redisEngine, b.postgresEngine, b.etcdEngine} {
		if e != nil {
			m.Servers = append(m.Servers, e.setup)
		}
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if name, shown := libraries[dep.Path]; shown {
				m.Libraries = append(m.Libraries, name+" "+strings.TrimPrefix(dep.Version, "v"))
			}
		}
	}
}

// libraries are the compared libraries and their drivers, by module.
var libraries = map[string]string{
	"github.com/go-redsync/redsync/v4": "redsync",
	"github.com/bsm/redislock":         "redislock",
	"github.com/redis/rueidis":         "rueidislock",
	"cirello.io/pglock":                "pglock",
	"go.etcd.io/etcd/client/v3":        "etcd client",
	"modernc.org/sqlite":               "modernc sqlite",
	"github.com/redis/go-redis/v9":     "go-redis",
	"github.com/jackc/pgx/v5":          "pgx",
	"github.com/lib/pq":                "pq",
}

// writeJSON writes the whole report.
func (r *report) writeJSON(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// aboutCharts stands at the top of the page.
const aboutCharts = "- in the charts a tick marks 1.00×; hatched bars are there for scale, and a cut\n" +
	"  bar is longer than its chart\n" +
	"- only tables with ratios to the floor or to the first have a chart; hand-offs,\n" +
	"  kept leases and others have none\n"

// writePage writes the page for people, and its charts.
func (r *report) writePage(path string) error {
	var page strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&page, format, args...) }
	p("# Benchmarks\n\n")
	p("Written by `make bench`; do not edit.\n\n")
	p(
		"Machines differ and are noisy. So contenders alternate within one run, and each\n"+
			"figure is the median of %d rounds unless the text says otherwise. Compare the\n"+
			"ratios, not the times.\n\n",
		r.Machine.Rounds,
	)
	r.writeMachine(&page)
	if len(r.Machine.Libraries) > 0 {
		p("- %s\n", strings.Join(r.Machine.Libraries, ", "))
	}
	p("- the floor is the least that a lock needs: the same number of round trips with\n" +
		"  the same kind of statement, at the same durability\n")
	p("- round trips and commands are counted on the wire; CPU time is the client's and\n  the server's\n")
	p(aboutCharts)
	r.writeTables(&page, "## ")
	if err := os.WriteFile(path, []byte(strings.TrimRight(page.String(), "\n")+"\n"), 0o644); err != nil {
		return err
	}
	return drawCharts(path)
}

// writeMachine writes what a reader needs to judge the numbers.
func (r *report) writeMachine(page *strings.Builder) {
	p := func(format string, args ...any) { fmt.Fprintf(page, format, args...) }
	m := r.Machine
	p(
		"- %d cores, %s, %s; clients and servers on one machine, over\n  the loopback interface\n",
		m.Cores, m.System, m.Go,
	)
	if m.Load != "" {
		p("- load average before the run: %s; if it is not near 0, other programs used\n  the machine, too\n", m.Load)
	}
	for _, s := range m.Servers {
		p("- %s\n", s)
	}
}

// writeTables writes all tables, each below a heading of this level.
func (r *report) writeTables(page *strings.Builder, level string) {
	p := func(format string, args ...any) { fmt.Fprintf(page, format, args...) }
	for _, t := range r.Tables {
		p("\n%s%s\n\n%s\n\n", level, t.Title, t.What)
		if link := t.link(); link != "" {
			p("%s\n\n", link)
		}
		p("|  |")
		for _, c := range t.columns {
			p(" %s |", c.title)
		}
		p("\n|---|%s\n", strings.Repeat("---:|", len(t.columns)))
		for _, row := range t.Rows {
			p("| %s |\n", strings.Join(t.cells(row), " | "))
		}
		p("\n")
		for _, a := range t.Aims {
			p("- %s\n", a)
		}
		for _, note := range t.Notes {
			p("- %s\n", note)
		}
	}
}
