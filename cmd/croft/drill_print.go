package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/croft-dev/croft/internal/drill"
)

// printDrill prints a drill for people: the steps, the owners, the damage and
// the verdict.
func (a *app) printDrill(r *drill.Report, kept bool) {
	a.printDrillSteps(r, func(drill.Scene) {})
	a.printDrillOwners(r)
	a.printDrillDamage(r)
	a.printDrillEnd(r, kept)
}

// drillWords are the results, and their colours, for people.
var drillWords = map[drill.Result]cell{
	drill.OK:        {"ok", green},
	drill.Failed:    {"FAILED", red},
	drill.Corrupted: {"CORRUPTED", red},
	drill.NotDone:   {"NOT DONE", yellow},
}

// printDrillSteps prints the steps as a table, with a heading for every scene.
// A narrow terminal gets two lines for every step instead. It calls after at
// the end of every scene.
func (a *app) printDrillSteps(r *drill.Report, after func(drill.Scene)) {
	style := a.palette()
	result, tried, expected, happened := 0, width("TRIED"), width("SHOULD BE"), width("HAPPENED")
	for _, s := range r.Steps() {
		result, tried = max(result, width(drillWords[s.Result].text)), max(tried, width(s.Tried))
		expected, happened = max(expected, width(s.Expected)), max(happened, width(line(a.redact(s.Happened))))
	}
	pad := func(s string, n int) string { return strings.Repeat(" ", max(0, n-width(s))+2) }
	room, isTerminal := terminal(a.stdout)
	narrow := isTerminal && room < result+tried+expected+happened+6
	if !narrow {
		fmt.Fprintln(a.stdout, style.paint(faint,
			pad("", result)+"TRIED"+pad("TRIED", tried)+"SHOULD BE"+pad("SHOULD BE", expected)+"HAPPENED"))
	}
	for i, scene := range r.Scenes {
		if i > 0 {
			fmt.Fprintln(a.stdout)
		}
		fmt.Fprintf(a.stdout, "%s  %s\n", style.paint(bold, scene.Name), scene.Story)
		for _, s := range scene.Steps {
			verdict, text := drillWords[s.Result], line(a.redact(s.Happened))
			begin := style.paint(verdict.colour, verdict.text) + pad(verdict.text, result) + s.Tried
			if narrow {
				fmt.Fprintf(a.stdout, "%s; should be: %s\n%s%s\n", begin, s.Expected, pad("", result), text)
				continue
			}
			fmt.Fprintln(a.stdout, begin+pad(s.Tried, tried)+s.Expected+pad(s.Expected, expected)+text)
		}
		after(scene)
	}
}

// printDrillDamage prints the newer results that a stale write has replaced.
func (a *app) printDrillDamage(r *drill.Report) {
	style := a.palette()
	first := true
	for _, s := range r.Steps() {
		if s.Lost == "" {
			continue
		}
		if first {
			fmt.Fprintf(a.stdout, "\n%s  newer results that stale writes have replaced\n", style.paint(bold, "damage"))
			first = false
		}
		fmt.Fprintf(a.stdout, "%s: %s\n  before  %s\n  after   %s\n", s.Name, s.Tried, line(s.Before),
			style.paint(red, line(s.After)))
	}
}

// printDrillEnd prints the verdict.
func (a *app) printDrillEnd(r *drill.Report, kept bool) {
	style := a.palette()
	all, wrong, through, undone := len(r.Steps()), r.Count(drill.Failed), r.Count(drill.Corrupted),
		r.Count(drill.NotDone)
	fmt.Fprintln(a.stdout)
	switch {
	case r.Good():
		fmt.Fprintln(a.stdout,
			style.paint(green, fmt.Sprintf("All %d as they should be: nothing stale got through.", all)))
	case wrong == 0 && through > 0 && !r.Guarded:
		fmt.Fprintln(a.stdout, style.paint(red, fmt.Sprintf("%s got through. The store answered every question about "+
			"the lease right. It did not help, because the file asked none.", counted(through, "stale write"))))
		fmt.Fprintln(a.stdout,
			"This was the drill without the fence. Without --unguarded, the same writes are refused.")
	case wrong+through > 0:
		fmt.Fprintln(a.stdout, style.paint(red, fmt.Sprintf("%d of %d went WRONG: this store, or the guard of these "+
			"files, must not be relied on as it is.", wrong+through, all)))
		fmt.Fprintln(a.stdout, "croft doctor looks at how the store is set up; with --keep the drill leaves keys and "+
			"files for you to look at.")
	}
	if undone > 0 {
		fmt.Fprintln(a.stdout, style.paint(yellow, fmt.Sprintf("%d could not be tried. Steps that rest on them "+
			"were left out: nothing is proved about them.", undone)))
	}
	fmt.Fprintln(a.stdout,
		style.paint(faint, fmt.Sprintf("%s, %d processes, TTL %s. The store's own account: croft history %s",
			short(r.Took.Round(100*time.Millisecond)), r.Processes, r.TTL, r.Scenes[0].Key)))
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
