package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// drawn is what a chart shows: its texts, and the lengths of its bars.
type drawn struct {
	texts []string
	bars  []float64
}

func read(t *testing.T, file string) drawn {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var d drawn
	in := xml.NewDecoder(bytes.NewReader(text))
	for {
		token, err := in.Token()
		if errors.Is(err, io.EOF) {
			return d
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		start, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		attr := map[string]string{}
		for _, a := range start.Attr {
			attr[a.Name.Local] = a.Value
		}
		switch {
		case start.Name.Local == "text":
			var line string
			if err := in.DecodeElement(&line, &start); err != nil {
				t.Fatal(err)
			}
			d.texts = append(d.texts, line)
		case start.Name.Local == "rect" && attr["height"] == "12":
			width, err := strconv.ParseFloat(attr["width"], 64)
			if err != nil {
				t.Fatal(err)
			}
			d.bars = append(d.bars, width)
		}
	}
}

// TestThePageAndItsChartsShowTheSameNumbers reads the tables of the committed
// page on its own, and compares them with the texts of the committed charts.
func TestThePageAndItsChartsShowTheSameNumbers(t *testing.T) {
	const docs = "../docs"
	page, err := os.ReadFile(filepath.Join(docs, "benchmarks.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), aboutCharts) {
		t.Errorf("the page does not say which tables have charts: %s", aboutCharts)
	}
	heading := regexp.MustCompile(`\| to the (?:floor|first) \|`)
	charts := 0
	for _, section := range strings.Split(string(page), "\n## ")[1:] {
		title, _, _ := strings.Cut(section, "\n")
		links := regexp.MustCompile(`\]\((pictures/.*)\)`).FindAllStringSubmatch(section, -1)
		has := heading.MatchString(section)
		if has != (len(links) == 1) {
			t.Errorf("%s: a table with ratios: %v, charts: %v", title, has, links)
		}
		if !has || len(links) != 1 {
			continue
		}
		charts++
		want := []string{title}
		column := 0
		for line := range strings.Lines(section) {
			cells := strings.Split(line, " | ")
			switch {
			case heading.MatchString(line):
				column = slices.IndexFunc(cells, func(s string) bool { return strings.HasPrefix(s, "to the ") })
			case strings.HasPrefix(line, "| "):
				want = append(want, strings.TrimPrefix(cells[0], "| "), strings.TrimSuffix(cells[column], " |\n"))
			}
		}
		got := read(t, filepath.Join(docs, links[0][1])).texts
		if len(got) < 2 || !slices.Equal(slices.Delete(slices.Clone(got), 1, 2), want) { // the second explains the bars
			t.Errorf("%s shows %q, the table %q", links[0][1], got, want)
		}
	}
	if charts == 0 {
		t.Error("the page has no charts")
	}

	// The bars are right as well, and no chart is left over.
	all, err := chartsOf(string(page))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		committed, err := os.ReadFile(filepath.Join(docs, c.file))
		if err != nil || !bytes.Equal(committed, c.draw()) {
			t.Errorf("%s is not what go run . -draw ../docs/benchmarks.md draws: %v", c.file, err)
		}
	}
	if files, err := filepath.Glob(filepath.Join(docs, "pictures", "bench-*.svg")); err != nil || len(files) != len(all) {
		t.Errorf("%d files for %d charts: %v", len(files), len(all), err)
	}
}

func TestAPageGetsAChartForEveryTableWithRatios(t *testing.T) {
	dir := t.TempDir()
	page := filepath.Join(dir, "page.md")
	old := filepath.Join(dir, "pictures", "bench-old.svg")
	if err := os.MkdirAll(filepath.Dir(old), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(old, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	values := func(rate float64) map[string]float64 { return map[string]float64{"rate": rate} }
	ratios := &table{
		Name: "some-crowd", Title: "Some: <crowd>", What: "A crowd.",
		Rows: []row{
			{"floor", values(100)},
			{"croft", values(400)},
			{"peer & friends", values(50)},
			{"absent", map[string]float64{}},
			{"nothing, for scale", values(2_000_000)},
		},
		columns: []column{{"rate", "per second", digits}, {"ratio", "to the floor", asRatio}},
	}
	for _, r := range ratios.Rows {
		if rate, measured := r.Values["rate"]; measured {
			r.Values["ratio"] = rate / 100
		}
	}
	times := &table{
		Name: "times", Title: "Times", Rows: []row{{"croft", values(1)}}, columns: []column{{"rate", "median", digits}},
	}
	r := report{Tables: []*table{times, ratios}}
	if err := r.writePage(page); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "pictures", "*"))
	if want := filepath.Join(dir, "pictures", "bench-some-crowd.svg"); err != nil || !slices.Equal(files, []string{want}) {
		t.Fatalf("there are %q, want %s alone: %v", files, want, err)
	}
	got := read(t, files[0])
	want := []string{
		"Some: <crowd>", "Throughput, as a multiple of the floor: longer is better",
		"floor", "1.00×", "croft", "4.00×", "peer & friends", "0.50×", "absent", "–", "nothing, for scale", "20.0k×",
	}
	if !slices.Equal(got.texts, want) {
		t.Errorf("the chart shows %q, want %q", got.texts, want)
	}
	// The bar for scale is cut off where the longest other one ends.
	if want := []float64{112, 448, 56, 448}; !slices.Equal(got.bars, want) {
		t.Errorf("the bars are %v long, want %v", got.bars, want)
	}
	text, err := os.ReadFile(page)
	if err != nil || !strings.Contains(string(text), "A crowd.\n\n![The column “to the floor” of the table below, as bars]"+
		"(pictures/bench-some-crowd.svg)\n\n|  | per second | to the floor |\n") {
		t.Errorf("the page does not show the chart: %v\n%s", err, text)
	}
}

func TestAPageWithoutTheNumbersOfAChartIsRefused(t *testing.T) {
	const link = "## T\n\n![x](pictures/bench-t.svg)\n"
	for page, want := range map[string]string{
		link: "a chart without a table",
		link + "\n|  | median |\n|---|---:|\n| a | 1ms |\n":                          "no ratios",
		link + "\n|  | each | to the first |\n|---|---:|---:|\n| a | 1ms | fast |\n": `"fast" is no ratio`,
		link + "\n|  | each | to the first |\n|---|---:|---:|\n| a | 1ms | NaN× |\n": `"NaN×" is no ratio`,
		link + "\n|  | each | to the first |\n|---|---:|---:|\n| a | 1ms |\n":        "has no ratio",
	} {
		if _, err := chartsOf(page); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", page, err, want)
		}
	}
}
