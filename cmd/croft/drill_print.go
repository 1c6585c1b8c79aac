package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/croft-dev/croft/internal/drill"
)

// printDrill shows a drill to people: what was tried, who held the keys when, and what it all means.
func (a *app) printDrill(r *drill.Report, kept bool) {
	a.printDrillSteps(r)
	a.printDrillOwners(r)
	a.printDrillDamage(r)
	a.printDrillEnd(r, kept)
}

// drillWords are the results as people read them.
var drillWords = map[drill.Result]cell{
	drill.OK:        {"ok", green},
	drill.Failed:    {"FAILED", red},
	drill.Corrupted: {"CORRUPTED", red},
	drill.NotDone:   {"NOT DONE", yellow},
}

// printDrillSteps prints a table with a heading for every scene; where the terminal is too narrow for it, one entry below the other.
func (a *app) printDrillSteps(r *drill.Report) {
	style := a.palette()
	tried, expected, happened := width("TRIED"), width("SHOULD BE"), 0
	for _, s := range r.Steps() {
		tried, expected, happened = max(tried, width(s.Tried)), max(expected, width(s.Expected)), max(happened, width(line(s.Happened)))
	}
	const result = 9
	row := func(c cell, text ...string) {
		pad := func(s string, n int) string { return s + strings.Repeat(" ", max(0, n-width(s))+2) }
		fmt.Fprintln(a.stdout, style.paint(c.colour, c.text)+strings.Repeat(" ", result-width(c.text)+2)+
			pad(text[0], tried)+pad(text[1], expected)+text[2])
	}
	room, isTerminal := terminal(a.stdout)
	narrow := isTerminal && room < result+tried+expected+happened+6
	if !narrow {
		fmt.Fprintln(a.stdout, style.paint(faint, strings.Repeat(" ", result+2)+
			fmt.Sprintf("%-*s  %-*s  %s", tried, "TRIED", expected, "SHOULD BE", "HAPPENED")))
	}
	for i, scene := range r.Scenes {
		if i > 0 {
			fmt.Fprintln(a.stdout)
		}
		fmt.Fprintf(a.stdout, "%s  %s\n", style.paint(bold, scene.Name), scene.Story)
		for _, s := range scene.Steps {
			word, text := drillWords[s.Result], line(a.redact(s.Happened))
			if !narrow {
				row(word, s.Tried, s.Expected, text)
				continue
			}
			indent := strings.Repeat(" ", result+2)
			fmt.Fprintf(a.stdout, "%s%s%s\n%sshould be: %s\n%shappened:  %s\n", style.paint(word.colour, word.text), indent[width(word.text):], s.Tried,
				indent, s.Expected, indent, text)
		}
	}
}

// printDrillDamage shows what stale writes have done.
func (a *app) printDrillDamage(r *drill.Report) {
	style := a.palette()
	first := true
	for _, s := range r.Steps() {
		if s.Before == s.After {
			continue
		}
		if first {
			fmt.Fprintln(a.stdout, "\n"+style.paint(bold, "What the stale writes did to the files"))
			first = false
		}
		fmt.Fprintf(a.stdout, "%s: %s\n  before  %s\n  after   %s\n", s.Name, s.Tried, line(s.Before), style.paint(red, line(s.After)))
	}
}

// printDrillEnd says what it all means.
func (a *app) printDrillEnd(r *drill.Report, kept bool) {
	style := a.palette()
	all, good, through, undone := len(r.Steps()), r.Count(drill.OK), r.Count(drill.Corrupted)+r.Count(drill.Failed), r.Count(drill.NotDone)
	fmt.Fprintln(a.stdout)
	switch {
	case good == all:
		fmt.Fprintln(a.stdout, style.paint(green, fmt.Sprintf("All %d as they should be: nothing stale got through.", all)))
	case through > 0 && !r.Guarded && r.Count(drill.Failed) == 0:
		fmt.Fprintln(a.stdout, style.paint(red, fmt.Sprintf("%s got through: the lease was held by the right one at any time, and that did not help.", counted(through, "stale write"))))
		fmt.Fprintln(a.stdout, "That is what happens without a fence. Run the drill without --unguarded to see the same writes refused.")
	case through > 0:
		fmt.Fprintln(a.stdout, style.paint(red, fmt.Sprintf("%d of %d went WRONG: do not trust this store with work that must not be done twice.", through, all)))
		fmt.Fprintln(a.stdout, "croft doctor looks at how it is set up.")
	}
	if undone > 0 {
		fmt.Fprintln(a.stdout, style.paint(yellow, fmt.Sprintf("%d could not be tried, and what rests on them was left out: the drill proves nothing about those.", undone)))
	}
	fmt.Fprintln(a.stdout, style.paint(faint, fmt.Sprintf("%s, %d processes, TTL %s. The store's own account: croft history %spause",
		short(r.Took.Round(100*time.Millisecond)), r.Processes, r.TTL, r.Keys)))
	if kept {
		fmt.Fprintf(a.stdout, "Kept: %s, and the keys under %s\n", line(r.Dir), r.Keys)
	}
	for _, key := range r.Left {
		fmt.Fprintf(a.stderr, "croft: %s could not be let go of; it comes free by itself\n", word(key))
	}
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
