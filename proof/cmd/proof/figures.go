package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sort"
	"strings"
	"time"
)

// run is what one call has run.
type run struct {
	At       time.Time `json:"at"`
	Seconds  float64   `json:"seconds"`
	Seeds    int64     `json:"seeds"`
	Requests int64     `json:"requests"`
	Faults   int64     `json:"faults"`
	Mutants  int       `json:"mutants"`
	Killed   int       `json:"killed"`
	Chaos    []storm   `json:"chaos"`
	Cuts     bool      `json:"cuts"`
	Model    bool      `json:"model"`
	Failed   []string  `json:"failed,omitempty"`
}

// storm is one run of chaos.
type storm struct {
	Backend    string         `json:"backend"`
	Guarded    bool           `json:"guarded"`
	TookNS     int64          `json:"took_ns"`
	Operations int64          `json:"operations"`
	Grants     int64          `json:"grants"`
	Updates    int64          `json:"updates"`
	Refusals   int64          `json:"refusals"`
	Unknown    int64          `json:"unknown"`
	Lost       int64          `json:"lost"`
	FirstLoss  int64          `json:"first_loss_ns,omitempty"`
	Faults     map[string]int `json:"faults"`
}

// Between these lines of the page are the figures.
const (
	begin = "<!-- figures: make proof writes them -->"
	end   = "<!-- end of figures -->"
)

// write adds the run to the book, and writes the page anew.
func (p *program) write() error {
	if p.page == "" {
		return nil
	}
	var runs []*run
	text, err := os.ReadFile(p.book)
	if err == nil {
		err = json.Unmarshal(text, &runs)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w; move it away to begin anew", p.book, err)
	}
	runs = append(runs, p.run)
	if text, err = json.MarshalIndent(runs, "", "  "); err != nil {
		return err
	}
	page, err := os.ReadFile(p.page)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(page), begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return fmt.Errorf("%s has no place for the figures: a line %q and a line %q", p.page, begin, end)
	}
	if err := os.WriteFile(p.book, append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(p.page, []byte(before+begin+"\n"+figures(runs)+end+after), 0o644)
}

// figures is the text between the lines.
func figures(runs []*run) string {
	var b strings.Builder
	var total run
	var stormy time.Duration
	for _, r := range runs {
		total.Seeds += r.Seeds
		total.Requests += r.Requests
		total.Faults += r.Faults
		total.Seconds += r.Seconds
		for _, s := range r.Chaos {
			stormy += time.Duration(s.TookNS)
		}
	}
	last := runs[len(runs)-1]
	fmt.Fprintf(&b, "\nAll runs that were written down, %d of them: %s seeds with %s requests and %s faults in the simulator, %.1f hours of chaos, %.1f hours in all.\n\n",
		len(runs), thousands(total.Seeds), thousands(total.Requests), thousands(total.Faults), stormy.Hours(), total.Seconds/3600)
	fmt.Fprintf(&b, "The last one, of %s, took %s: %s seeds, %s requests, %s faults; %d of %d broken variants found; power cuts %s; the model %s.",
		last.At.Format("2006-01-02"), time.Duration(last.Seconds*float64(time.Second)).Round(time.Second), thousands(last.Seeds), thousands(last.Requests), thousands(last.Faults),
		last.Killed, last.Mutants, held(last.Cuts), held(last.Model))
	if len(last.Failed) > 0 {
		fmt.Fprintf(&b, " FAILED: %s.", strings.Join(last.Failed, ", "))
	}
	b.WriteString(" Chaos, without guards and with them:\n\n| backend | guards | for | operations | grants | writes | refused | unknown | faults | updates lost |\n|---|---|---|---|---|---|---|---|---|---|\n")
	sort.SliceStable(last.Chaos, func(i, j int) bool { return last.Chaos[i].Backend < last.Chaos[j].Backend })
	for _, s := range last.Chaos {
		faults := 0
		for _, n := range s.Faults {
			faults += n
		}
		lost := "0"
		if s.Lost > 0 {
			lost = fmt.Sprintf("%d, the first after %s", s.Lost, time.Duration(s.FirstLoss).Round(100*time.Millisecond))
		}
		guards := "no"
		if s.Guarded {
			guards = "yes"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s | %d | %s |\n", s.Backend, guards, time.Duration(s.TookNS).Round(time.Second),
			thousands(s.Operations), thousands(s.Grants), thousands(s.Updates), thousands(s.Refusals), thousands(s.Unknown), faults, lost)
	}
	b.WriteString("\n")
	return b.String()
}

func held(good bool) string {
	if good {
		return "held"
	}
	return "FAILED"
}

// thousands is a number with its digits set apart.
func thousands(n int64) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
