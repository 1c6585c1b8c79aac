package drillcmd

import (
	"fmt"
	"strings"
	"time"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
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
var drillWords = map[drill.Result]cli.Cell{
	drill.OK:        {Text: "ok", Colour: cli.Green},
	drill.Failed:    {Text: "FAILED", Colour: cli.Red},
	drill.Corrupted: {Text: "CORRUPTED", Colour: cli.Red},
	drill.NotDone:   {Text: "NOT DONE", Colour: cli.Yellow},
}

// printDrillSteps prints the steps as a table, with a heading for every scene.
// A narrow terminal gets two lines for every step instead. It calls after at
// the end of every scene.
func (a *app) printDrillSteps(r *drill.Report, after func(drill.Scene)) {
	style := a.Palette()
	result, tried, expected, happened := 0, cli.Width("TRIED"), cli.Width("SHOULD BE"), cli.Width("HAPPENED")
	for _, s := range r.Steps() {
		result, tried = max(result, cli.Width(drillWords[s.Result].Text)), max(tried, cli.Width(s.Tried))
		expected, happened = max(expected, cli.Width(s.Expected)),
			max(happened, cli.Width(cli.Line(a.Redact(s.Happened))))
	}
	pad := func(s string, n int) string { return strings.Repeat(" ", max(0, n-cli.Width(s))+2) }
	room, isTerminal := cli.TerminalWidth(a.Stdout)
	narrow := isTerminal && room < result+tried+expected+happened+6
	if !narrow {
		fmt.Fprintln(a.Stdout, style.Paint(cli.Faint,
			pad("", result)+"TRIED"+pad("TRIED", tried)+"SHOULD BE"+pad("SHOULD BE", expected)+"HAPPENED"))
	}
	for i, scene := range r.Scenes {
		if i > 0 {
			fmt.Fprintln(a.Stdout)
		}
		fmt.Fprintf(a.Stdout, "%s  %s\n", style.Paint(cli.Bold, scene.Name), scene.Story)
		for _, s := range scene.Steps {
			verdict, text := drillWords[s.Result], cli.Line(a.Redact(s.Happened))
			begin := style.Paint(verdict.Colour, verdict.Text) + pad(verdict.Text, result) + s.Tried
			if narrow {
				fmt.Fprintf(a.Stdout, "%s; should be: %s\n%s%s\n", begin, s.Expected, pad("", result), text)
				continue
			}
			fmt.Fprintln(a.Stdout, begin+pad(s.Tried, tried)+s.Expected+pad(s.Expected, expected)+text)
		}
		after(scene)
	}
}

// printDrillDamage prints the newer results that a stale write has replaced.
func (a *app) printDrillDamage(r *drill.Report) {
	style := a.Palette()
	first := true
	for _, s := range r.Steps() {
		if s.Lost == "" {
			continue
		}
		if first {
			fmt.Fprintf(a.Stdout, "\n%s  newer results that stale writes have replaced\n",
				style.Paint(cli.Bold, "damage"))
			first = false
		}
		fmt.Fprintf(a.Stdout, "%s: %s\n  before  %s\n  after   %s\n", s.Name, s.Tried, cli.Line(s.Before),
			style.Paint(cli.Red, cli.Line(s.After)))
	}
}

// printDrillEnd prints the verdict.
func (a *app) printDrillEnd(r *drill.Report, kept bool) {
	style := a.Palette()
	all, wrong, through, undone := len(r.Steps()), r.Count(drill.Failed), r.Count(drill.Corrupted),
		r.Count(drill.NotDone)
	fmt.Fprintln(a.Stdout)
	switch {
	case r.Good():
		fmt.Fprintln(a.Stdout,
			style.Paint(cli.Green, fmt.Sprintf("All %d as they should be: nothing stale got through.", all)))
	case wrong == 0 && through > 0 && !r.Guarded:
		fmt.Fprintln(a.Stdout,
			style.Paint(cli.Red, fmt.Sprintf("%s got through. The store answered every question about "+
				"the lease right. It did not help, because the file asked none.", counted(through, "stale write"))))
		fmt.Fprintln(a.Stdout,
			"This was the drill without the fence. Without --unguarded, the same writes are refused.")
	case wrong+through > 0:
		fmt.Fprintln(a.Stdout,
			style.Paint(cli.Red, fmt.Sprintf("%d of %d went WRONG: this store, or the guard of these "+
				"files, must not be relied on as it is.", wrong+through, all)))
		fmt.Fprintln(a.Stdout, "croft doctor looks at how the store is set up; with --keep the drill leaves keys and "+
			"files for you to look at.")
	}
	if undone > 0 {
		fmt.Fprintln(a.Stdout, style.Paint(cli.Yellow, fmt.Sprintf("%d could not be tried. Steps that rest on them "+
			"were left out: nothing is proved about them.", undone)))
	}
	fmt.Fprintln(a.Stdout,
		style.Paint(cli.Faint, fmt.Sprintf("%s, %d processes, TTL %s. The store's own account: croft history %s",
			cli.Short(r.Took.Round(100*time.Millisecond)), r.Processes, r.TTL, r.Scenes[0].Key)))
	if kept {
		fmt.Fprintf(a.Stdout, "Kept: %s, and the keys under %s\n", cli.Line(r.Dir), r.Keys)
	}
	for _, key := range r.Left {
		fmt.Fprintf(a.Stderr, "croft: %s could not be let go of; it comes free by itself\n", cli.Word(key))
	}
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
