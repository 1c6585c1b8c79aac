package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sort"
	"strings"
	"time"
)

// run has the figures of one run of the command.
type run struct {
	At            time.Time  `json:"at"`
	Seconds       float64    `json:"seconds"`
	FirstSeed     uint64     `json:"first_seed"` // the first seed of every profile
	NextSeed      uint64     `json:"next_seed"`
	Seeds         int64      `json:"seeds"`
	Requests      int64      `json:"requests"`
	LeastRequests int64      `json:"least_requests"` // the least in one seed
	Faults        int64      `json:"faults"`
	Mutants       int        `json:"mutants"`
	Killed        int        `json:"killed"`
	Profiles      []profile  `json:"profiles,omitempty"` // kept for the last run only
	Chaos         []chaosRun `json:"chaos"`
	Cuts          int64      `json:"cuts"`
	Folders       int64      `json:"folders"`         // different folders that were recovered
	Crowd         int64      `json:"crowd,omitempty"` // tries with several processes at once
	States        int64      `json:"states"`          // states of the model
	Takeovers     int64      `json:"takeovers,omitempty"`
	Peers         int64      `json:"peers,omitempty"` // answers to MCP clients that were compared
	Targets       int64      `json:"fuzz_targets,omitempty"`
	Inputs        int64      `json:"fuzz_inputs,omitempty"`
	Parts         []outcome  `json:"parts"`
	Failed        []string   `json:"failed,omitempty"`
}

// profile counts what happened in the worlds of one profile, by kind (fault,
// transition, refusal) and name.
type profile struct {
	Profile  string                      `json:"profile"`
	Seeds    int64                       `json:"seeds"`
	Requests int64                       `json:"requests"`
	Coverage map[string]map[string]int64 `json:"coverage"`
}

// seen formats a table cell about one kind: how many different ones there are,
// how often they happened, and which was rarest.
func (p profile) seen(kind string) string {
	var sum int64
	rarest := ""
	for _, name := range slices.Sorted(maps.Keys(p.Coverage[kind])) {
		n := p.Coverage[kind][name]
		if sum += n; rarest == "" || n < p.Coverage[kind][rarest] {
			rarest = name
		}
	}
	return fmt.Sprintf(
		"%d kinds, %s times; rarest: %s, %s", len(p.Coverage[kind]), thousands(sum), rarest,
		thousands(p.Coverage[kind][rarest]),
	)
}

// outcome is the result of a part.
type outcome struct {
	Part    string  `json:"part"`
	Seconds float64 `json:"seconds"`
	Held    bool    `json:"held"`
}

// chaosRun is one run of chaos.
type chaosRun struct {
	Backend    string         `json:"backend"`
	Guarded    bool           `json:"guarded"`
	Seed       uint64         `json:"seed"`
	TookNS     int64          `json:"took_ns"`
	Operations int64          `json:"operations"`
	Grants     int64          `json:"grants"`
	Updates    int64          `json:"updates"`
	Refusals   int64          `json:"refusals"`
	Unknown    int64          `json:"unknown"`
	Lost       int64          `json:"lost"`
	FirstLoss  int64          `json:"first_loss_ns,omitempty"`
	Faults     map[string]int `json:"faults"`
	Violations []breach       `json:"violations,omitempty"`
}

// breach is a broken law in a history.
type breach struct{ Law, Key, Text string }

// faults returns how many faults there were.
func (w chaosRun) faults() (n int) {
	for _, fired := range w.Faults {
		n += fired
	}
	return n
}

// The figures are between these two lines of the page.
const (
	begin = "<!-- figures: make proof writes them -->"
	end   = "<!-- end of figures -->"
)

// read reads the figures of earlier runs.
func (p *program) read() (runs []*run, err error) {
	text, err := os.ReadFile(p.book)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &runs)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w; move it away to begin anew", p.book, err)
	}
	return runs, nil
}

// write adds the run to the book, and rewrites the figures in the page.
func (p *program) write(earlier []*run) error {
	if p.page == "" {
		return nil
	}
	runs := slices.Concat(earlier, []*run{p.run})
	for _, r := range earlier {
		r.Profiles = nil
	}
	text, err := json.MarshalIndent(runs, "", "  ")
	if err != nil {
		return err
	}
	page, err := os.ReadFile(p.page)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(page), begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return fmt.Errorf("%s does not say where the figures go: it needs a line %q and a line %q", p.page, begin, end)
	}
	if err := os.WriteFile(p.book, append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(p.page, []byte(before+begin+"\n"+figures(runs)+end+after), 0o644)
}

// figures returns the text between the two lines.
func figures(runs []*run) string {
	var b strings.Builder
	var total run
	var stormy time.Duration
	failed := 0
	for _, r := range runs {
		total.Seeds += r.Seeds
		total.Requests += r.Requests
		total.Faults += r.Faults
		total.Cuts += r.Cuts
		total.Seconds += r.Seconds
		for _, s := range r.Chaos {
			stormy += time.Duration(s.TookNS)
		}
		if len(r.Failed) > 0 {
			failed++
		}
	}
	last := runs[len(runs)-1]
	fmt.Fprintf(&b, "\nRuns so far: %d, failed: %d. Together they did:\n\n"+
		"- simulator: %s seeds, none twice; %s requests, %s faults\n"+
		"- chaos on real servers: %.1f hours\n- power cuts: %s\n- everything: %.1f hours\n\n",
		len(runs), failed, thousands(total.Seeds), thousands(total.Requests), thousands(total.Faults),
		stormy.Hours(), thousands(total.Cuts), total.Seconds/3600)
	fmt.Fprintf(
		&b, "The last run, of %s, took %s:\n\n| part | | time | result |\n|---|---|---|---|\n",
		last.At.Format("2006-01-02"), span(last.Seconds),
	)
	for _, o := range last.Parts {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", titles[o.Part], last.what(o.Part), span(o.Seconds), word(o.Held))
	}
	for _, f := range last.Failed {
		fmt.Fprintf(&b, "\nFAILED: %s\n", f)
	}
	b.WriteString("\nThe simulator, profile by profile ([proof.json](proof.json) has every count):\n\n" +
		"| profile | seeds | requests | faults | transitions | refusals |\n|---|---|---|---|---|---|\n")
	for _, s := range last.Profiles {
		fmt.Fprintf(
			&b, "| %s | %s | %s | %s | %s | %s |\n", s.Profile, thousands(s.Seeds),
			thousands(s.Requests), s.seen("fault"), s.seen("transition"), s.seen("refusal"),
		)
	}
	b.WriteString("\nChaos, without guards and with guards:\n\n| backend | guards | for | operations | " +
		"grants | writes | refused | unknown | faults | updates lost |\n|---|---|---|---|---|---|---|---|---|---|\n")
	sort.SliceStable(last.Chaos, func(i, j int) bool { return last.Chaos[i].Backend < last.Chaos[j].Backend })
	for _, s := range last.Chaos {
		guards := "no"
		if s.Guarded {
			guards = "yes"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s | %d | %s |\n",
			s.Backend, guards, time.Duration(s.TookNS).Round(time.Second),
			thousands(s.Operations), thousands(s.Grants), thousands(s.Updates), thousands(s.Refusals),
			thousands(s.Unknown), s.faults(), s.losses())
	}
	b.WriteString("\n")
	return b.String()
}

// losses formats how many updates were lost, and how soon.
func (w chaosRun) losses() string {
	switch {
	case w.Lost == 0:
		return "0"
	case w.FirstLoss == 0:
		return fmt.Sprint(w.Lost)
	}
	return fmt.Sprintf("%d, the first after %s", w.Lost, time.Duration(w.FirstLoss).Round(100*time.Millisecond))
}

var titles = map[string]string{
	"variants": "broken variants", "sim": "simulator", "fuzz": "fuzzing", "chaos": "chaos on real servers",
	"cuts": "power cuts", "crowds": "crowds on one machine", "model": "the model",
	"takeovers": "takeovers between agents", "peers": "MCP clients and servers of others",
}

// nothing reports whether a part has no figures: it ran nothing, or printed
// nothing.
func (r *run) nothing(part string) bool {
	return map[string]int64{
		"variants": int64(r.Mutants), "sim": r.Seeds, "fuzz": r.Inputs, "chaos": int64(len(r.Chaos)),
		"cuts": r.Cuts, "crowds": r.Crowd, "model": r.States,
		"takeovers": r.Takeovers, "peers": r.Peers,
	}[part] == 0
}

// what says how much of a part was run.
func (r *run) what(part string) string {
	switch part {
	case "variants":
		return fmt.Sprintf("%d of %d found", r.Killed, r.Mutants)
	case "sim":
		return fmt.Sprintf(
			"%s seeds of at least %d requests; %s requests, %s faults", thousands(r.Seeds),
			r.LeastRequests, thousands(r.Requests), thousands(r.Faults),
		)
	case "fuzz":
		return fmt.Sprintf("%d targets, %s inputs", r.Targets, thousands(r.Inputs))
	case "chaos":
		backends, lost, faults := map[string]bool{}, int64(0), 0
		for _, w := range r.Chaos {
			backends[w.Backend] = true
			if w.Guarded {
				lost += w.Lost
			}
			faults += w.faults()
		}
		return fmt.Sprintf(
			"%d backends, %s faults; updates lost behind guards: %d", len(backends),
			thousands(int64(faults)), lost,
		)
	case "crowds":
		return fmt.Sprintf(
			"the suites of dir and sqlite in full; %s tries of processes that race or are killed",
			thousands(r.Crowd),
		)
	case "takeovers":
		return thousands(r.Takeovers) + " replaced agents behind croft mcp; all refused"
	case "peers":
		return thousands(r.Peers) + " answers are the same with croft mcp and without"
	case "cuts":
		return fmt.Sprintf("%s cuts, %s different folders recovered", thousands(r.Cuts), thousands(r.Folders))
	}
	return thousands(r.States) + " states"
}

// summary prints the end of the output: what failed, and how to see it again.
func (p *program) summary(out io.Writer) {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format, args...) }
	say("\n%-24s %-86s %-8s %s\n", "part", "", "time", "result")
	for _, o := range p.run.Parts {
		say("%-24s %-86s %-8s %s\n", titles[o.Part], p.run.what(o.Part), span(o.Seconds), word(o.Held))
	}
	say("%-24s %-86s %-8s %s\n", "all", "", span(p.run.Seconds), word(len(p.failures) == 0))
	for _, f := range p.failures {
		say("\n%s: %s\n   again: %s\n", titles[f.part], f.what, f.again)
	}
	if p.page != "" {
		say("\nwritten: %s, %s\n", p.page, p.book)
	}
}

func span(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(time.Second).String()
}

// thousands formats a number with commas between groups of digits.
func thousands(n int64) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
