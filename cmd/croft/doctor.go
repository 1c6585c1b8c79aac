package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/store"
)

func (a *app) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "doctor [TARGET]",
		GroupID: cli.GroupTool,
		Short:   "Examine whether the store, or a guard, is fit for its task",
		Long: `Examine the store as it is configured: how reliable its answers are, how its
clock compares with this machine's, and what weakens it.

With TARGET, the path or URL of a guarded resource, examine that instead: which
guard it has, and why.

Exit code 1 says that something is bad, or that a directory or file cannot be
opened. A warning is something that could be better. Exit code 14 says that the
store or the target does not answer.`,
		Example: `  croft doctor
  croft doctor --store sqlite:///var/lib/croft.db
  croft doctor --store etcd://host1,host2,host3/prefix --json
  croft doctor /shared/out/today.json`,
		Args: cli.Takes("[TARGET]"),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return a.doctorTarget(c.Context(), args[0])
			}
			return a.doctor(c.Context())
		},
	}
}

func (a *app) doctor(ctx context.Context) error {
	a.Examining = true
	ctx, cancel := context.WithTimeout(ctx, cli.ListTimeout)
	defer cancel()
	name, _, err := a.StoreName()
	if err != nil {
		return err
	}
	st, err := a.Open(ctx)
	unreached := cli.OutcomeOf(err).Exit == cli.ExitUnknown && !errors.Is(err, context.DeadlineExceeded)
	if err != nil && unreached && cli.LocalPath(name) != "" {
		// No server is away here: something is wrong with the file.
		return a.reportFindings([]store.Finding{
			{Check: "open", Level: store.Bad, Seen: err.Error(), Advice: "do what it says, then ask again"},
		}, store.Redact(name))
	}
	if err != nil {
		return err
	}
	defer st.Close()
	if _, err := a.Now(ctx, st); errors.Is(err, context.DeadlineExceeded) {
		return err // the examination would wait for a minute
	}
	findings, err := examine(ctx, st)
	if err != nil {
		return err
	}
	return a.reportFindings(findings, store.Redact(name))
}

// reportFindings prints the findings, and fails if one of them is bad.
func (a *app) reportFindings(findings []store.Finding, name string) error {
	for i := range findings {
		f := &findings[i]
		f.Seen, f.Advice = a.Redact(f.Seen), a.Redact(f.Advice)
		if a.JSON {
			a.Print(*f)
		}
	}
	if !a.JSON {
		a.printFindings(findings, cli.Line(name))
	}
	if verdictOf(findings) == store.Bad {
		return cli.ExitError(cli.ExitFailed)
	}
	return nil
}

// examine asks the store about itself. It compares the clocks if the store has
// not done so itself.
func examine(ctx context.Context, st store.Store) ([]store.Finding, error) {
	findings, err := examineStore(ctx, st)
	if err != nil {
		return nil, store.Unknown(err)
	}
	if !slices.ContainsFunc(findings, func(f store.Finding) bool { return f.Check == "clock" }) {
		clock, err := examineClock(ctx, st)
		if err != nil {
			return nil, store.Unknown(err)
		}
		findings = append(findings, clock)
	}
	return findings, nil
}

// examineStore returns the store's findings about itself. If the store has none
// to give, it reads a record, which shows at least that the store answers.
func examineStore(ctx context.Context, st store.Store) ([]store.Finding, error) {
	if e, ok := st.(store.Examiner); ok {
		own, err := e.Examine(ctx)
		if !errors.Is(err, errors.ErrUnsupported) {
			return own, err
		}
	}
	if _, err := st.Get(ctx, "croft.doctor"); err != nil {
		return nil, err
	}
	return []store.Finding{
		{Check: "access", Level: store.OK, Seen: "a record can be read"},
		{
			Check: "tier", Level: store.Warn, Seen: "unknown: this store cannot examine itself",
			Advice: "read its documentation, and let croft drill try it",
		},
	}, nil
}

// examineClock compares the store's clock with this machine's. A difference
// does no harm by itself, because the store alone judges deadlines. It matters
// when the store is lost, because a new store takes its first tokens from its
// own clock.
func examineClock(ctx context.Context, st store.Store) (store.Finding, error) {
	before := time.Now()
	theirs, err := st.Now(ctx)
	if err != nil {
		return store.Finding{}, err
	}
	took := time.Since(before)
	offset := theirs.Sub(before.Add(took / 2))
	f := store.Finding{Check: "clock", Level: store.OK, Seen: fmt.Sprintf("the store's clock is %s from this "+
		"machine's, asked in %s", signed(offset), took.Round(10*time.Microsecond))}
	if offset.Abs() > time.Second+took {
		f.Level = store.Warn
		f.Advice = "run a time service on both: after the store is lost, a new one must not begin with tokens that " +
			"the old one has issued"
	}
	return f, nil
}

func signed(d time.Duration) string {
	return fmt.Sprintf("%+.3fs", d.Seconds())
}

// printFindings prints a table of findings, then the advice, then the verdict.
func (a *app) printFindings(findings []store.Finding, name string) {
	t := a.Table("CHECK", "LEVEL", "SEEN")
	t.Whole = true
	colours := map[store.Level]cli.Colour{store.OK: cli.Green, store.Warn: cli.Yellow, store.Bad: cli.Red}
	for _, f := range findings {
		t.Row(cli.PlainCell(cli.Line(f.Check)), cli.Cell{Text: string(f.Level), Colour: colours[f.Level]},
			cli.PlainCell(cli.Line(f.Seen)))
	}
	t.Flush()
	fmt.Fprintln(a.Stdout)
	for _, f := range findings {
		if f.Advice != "" {
			fmt.Fprintf(a.Stdout, "%s: %s\n", cli.Line(f.Check), cli.Line(f.Advice))
		}
	}
	fmt.Fprintf(a.Stdout, "%s: %s\n", verdictText(a.Palette(), verdictOf(findings)), name)
}

// verdictOf is the worst level of findings.
func verdictOf(findings []store.Finding) store.Level {
	verdict := store.OK
	for _, f := range findings {
		if f.Level == store.Bad || f.Level == store.Warn && verdict == store.OK {
			verdict = f.Level
		}
	}
	return verdict
}

// verdictText is a verdict for people.
func verdictText(p cli.Palette, verdict store.Level) string {
	switch verdict {
	case store.Bad:
		return p.Paint(cli.Red, "not fit")
	case store.Warn:
		return p.Paint(cli.Yellow, "usable, but weaker than it could be")
	}
	return p.Paint(cli.Green, "fit")
}
