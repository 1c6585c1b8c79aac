// Command mutants runs every broken variant of Croft, and shows which check
// finds it. Variants of the simulator are found by a law. Those of the suites,
// the power cuts, the history checks and the model are found by a test.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"time"

	"github.com/croft-dev/croft/proof/sim"
)

const usage = `mutants runs every broken variant of Croft and shows which check finds it.

  go run ./proof/cmd/mutants          all of them: about a minute; needs the servers of the tests
  go run ./proof/cmd/mutants -quick   those that need no server

The exit status is 1 if one survives or could not be run, 2 if the command line is wrong.

`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr)) //nolint:gocritic // there is nothing left to stop
}

func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	p := &page{out: out, err: errOut}
	quick := false
	f := flag.NewFlagSet("mutants", flag.ContinueOnError)
	f.SetOutput(errOut)
	f.Usage = func() { p.tell(errOut, "%s", usage); f.PrintDefaults() }
	f.BoolVar(&p.json, "json", false, "print one JSON object for each variant instead of the table")
	f.BoolVar(&quick, "quick", false, "leave out what needs a server, or a program that may not be there")
	if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil || f.NArg() > 0 {
		p.tell(errOut, "mutants: it takes no arguments but flags; see -h\n")
		return 2
	}
	began := time.Now()
	if !p.json {
		p.tell(out, "  %-66s | %-78s | %s\n", "variant", "killed by", "how fast")
	}
	found, simErr := simulated(ctx, p)
	p.block("simulator", found)
	some := suites
	if quick {
		some = slices.DeleteFunc(slices.Clone(suites), func(s suite) bool { return s.needs })
	}
	err := errors.Join(simErr, tested(ctx, some, p))
	if err != nil {
		p.tell(errOut, "mutants: %v\n", err)
	}
	if good := p.end(time.Since(began)); !good || err != nil {
		return 1
	}
	return 0
}

// variant is a broken variant, and whether a check found it.
type variant struct {
	Part   string `json:"part"`    // the broken part: the law, a store, a client
	Name   string `json:"variant"` // its name
	Says   string `json:"says,omitempty"`
	By     string `json:"killed_by,omitempty"` // the check that found it, "" if none did
	Fast   string `json:"how_fast"`
	Again  string `json:"again"` // the command that runs it alone
	Killed bool   `json:"killed"`
}

// simulated runs the simulator's variants, with the simulator's command.
func simulated(ctx context.Context, p *page) (all []variant, err error) {
	c := exec.CommandContext(ctx, "go", "run", "./proof/cmd/sim", "--mutants", "--json")
	c.Stderr = p.err
	out, failed := c.Output() // the status is 1 if a variant survives
	for lines := json.NewDecoder(bytes.NewReader(out)); lines.More(); {
		var f struct {
			Mutant, Says, By string
			Part             string `json:"part"`
			Killed           bool
			Seed             uint64
			Seeds            int
			Took             time.Duration
		}
		if err := lines.Decode(&f); err != nil {
			return all, err
		}
		v := variant{
			Part: f.Part, Name: f.Mutant, Says: f.Says, By: f.By, Killed: f.Killed, Fast: quickly(f.Took),
			Again: "go run ./proof/cmd/sim --mutants --mutant " + f.Mutant,
		}
		switch {
		case f.Seeds == 1:
			v.Fast = "1 seed, " + v.Fast
		case f.Seeds > 1:
			v.Fast = fmt.Sprintf("%d seeds, %s", f.Seeds, v.Fast)
		}
		if f.Seed > 0 {
			v.Again = fmt.Sprintf("go run ./proof/cmd/sim --mutant %s --seed %d", f.Mutant, f.Seed)
		}
		if f.Seed > 0 && !f.Killed {
			v.By += ", which is not what it breaks"
		}
		all = append(all, v)
	}
	if len(all) != len(sim.Mutants) {
		return all, fmt.Errorf("the simulator has run %d of its %d variants: %w", len(all), len(sim.Mutants), failed)
	}
	return all, nil
}

// quickly formats a duration, coarsely.
func quickly(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return "under 10ms"
	case d < time.Second:
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(100 * time.Millisecond).String()
}

// page prints the table, and collects the variants.
type page struct {
	out, err io.Writer
	json     bool
	all      []variant
	sim      int
}

// block prints the variants of one package.
func (p *page) block(title string, some []variant) {
	p.all = append(p.all, some...)
	if title == "simulator" {
		p.sim = len(some)
	}
	if p.json {
		killed := 0
		for _, v := range some {
			_ = json.NewEncoder(p.out).Encode(v)
			if v.Killed {
				killed++
			}
		}
		p.tell(p.err, "%s: %d of %d killed\n", title, killed, len(some))
		return
	}
	p.tell(p.out, "\n%s\n", title)
	for _, v := range some {
		p.row(v.title(), v)
	}
}

// title names the variant's fault.
func (v variant) title() string {
	if v.Says != "" {
		return v.Part + ": " + v.Says
	}
	return v.Name
}

func (p *page) row(title string, v variant) {
	by := v.By
	if !v.Killed {
		by = "SURVIVES"
		if v.By != "" {
			by += ": " + v.By
		}
	}
	p.tell(p.out, "  %-66s | %-78s | %s\n", short(title, 66), short(by, 78), v.Fast)
}

// end prints the most common mistakes, the survivors and the count. It reports
// whether every mistake was run and no variant survived.
func (p *page) end(took time.Duration) bool {
	good := true
	var survivors []variant
	for _, v := range p.all {
		if !v.Killed {
			survivors = append(survivors, v)
		}
	}
	if !p.json {
		p.tell(p.out, "\nMistakes that locks are known for\n")
	}
	for _, m := range mistakes {
		i := slices.IndexFunc(p.all, func(v variant) bool { return v.Name == m.variant })
		switch {
		case i < 0:
			good = false
			p.tell(p.err, "  %s: its variant, %q, was not run\n", m.says, m.variant)
		case !p.json:
			p.row(m.says, p.all[i])
		}
	}
	p.tell(p.err, "\n")
	for _, v := range survivors {
		p.tell(p.err, "SURVIVES: %s (%s); again: %s\n", v.title(), v.Part, v.Again)
	}
	if !p.json {
		p.tell(p.out, "%d broken variants, %d killed: %d in the simulator, %d by suites, power cuts, "+
			"histories and the model; %s\n",
			len(p.all), len(p.all)-len(survivors), p.sim, len(p.all)-p.sim, took.Round(time.Second))
	}
	return good && len(survivors) == 0
}

// tell prints. Errors of writing are ignored.
func (p *page) tell(to io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(to, format, args...)
}

// short cuts a text to a length.
func short(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}
