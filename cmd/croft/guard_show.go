package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/wait"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/refusals"
	"github.com/croft-dev/croft/tenure"
)

func (a *app) guardShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show TARGET",
		Short: "Print the mark of a guarded resource, its owner, writes and refusals",
		Long: `Print the mark of a guarded resource: the newest stamp that it has admitted.

Files, S3 and Google Cloud Storage count the writes that they have admitted, and
tell when the mark last changed. Other resources do not, because they would have
to write once more at each write.

The store tells the rest, if it answers. The owner is that of the mark's grant.
OWNERS are those of the key's last terms, the newest first. The refusals are
those at TARGET, of any key: what was refused, what was let in although it would
have been refused (--observe), and what the store could not be asked about. A
proxy notes its refusals under the name of its resource, not of its mark: "croft
inventory --refusals" lists those.

A proxy announces where it keeps marks, such as /shared/croft-marks/{resource}.
Put the name of a resource there to see its mark.`,
		Example: "  croft guard show out/today.json\n  croft guard show out/today.json --json\n" +
			"  croft guard show /shared/croft-marks/orders/42",
		Args: cli.Takes("TARGET"),
		RunE: func(c *cobra.Command, args []string) error {
			return onGuard(c.Context(), args[0], a.guardShow)
		},
	}
}

// guardView is a guarded resource in JSON. Unknown facts are left out.
type guardView struct {
	markView
	*countsView
	*knownView
}

// countsView is what the resource tells besides its mark.
type countsView struct {
	Writes  uint64   `json:"writes"`
	Changed cli.When `json:"changed"`
}

// knownView is what the store tells of a resource.
type knownView struct {
	Owner  string   `json:"owner"` // of the mark; "" if the store does not know its grant
	Since  cli.When `json:"since"` // when that grant was made
	Owners []string `json:"owners"`
	Terms  int64    `json:"terms"`
	// Refused, Observed and the two Unsure count refusals at the target.
	Refused        int      `json:"refused"`
	RefusedSince   cli.When `json:"refused_since"`
	Observed       int      `json:"observed"`
	ObservedSince  cli.When `json:"observed_since"`
	UnsureAdmitted int      `json:"unsure_admitted"`
	UnsureRefused  int      `json:"unsure_refused"`
	UnsureSince    cli.When `json:"unsure_since"`

	now time.Time // on the store's clock
}

func (a *app) guardShow(ctx context.Context, g guard.Guard) error {
	mark, err := g.Mark(ctx)
	if err != nil {
		return err
	}
	v := guardView{markView: markView{Target: store.Redact(g.Target()), Mark: mark}}
	if counter, ok := g.(guard.Counter); ok {
		counts, err := counter.Counts(ctx)
		if err != nil {
			return err
		}
		v.countsView = &countsView{counts.Writes, cli.When(counts.Changed)}
	}
	v.knownView = a.known(ctx, v.Target, mark)
	if a.JSON {
		a.Print(v)
		return nil
	}
	a.printMark(v.Target, mark)
	if !mark.IsZero() {
		a.printCounts(v.countsView)
	}
	a.printKnown(v.knownView, mark)
	return nil
}

// known asks the store about a resource. It returns nil if there is no store
// that answers in time.
func (a *app) known(ctx context.Context, target string, mark fence.Mark) *knownView {
	ctx, cancel := context.WithTimeout(ctx, a.Timeout)
	defer cancel()
	// Not every system call ends with a context, as on a dead mount.
	v, err := wait.For(ctx, func() (*knownView, error) { return a.askAbout(ctx, target, mark) })
	if err == nil {
		return v
	}
	if !errors.Is(err, fs.ErrNotExist) { // there is no store
		fmt.Fprintf(a.Stderr, "croft: owners and refusals are left out, because the store does not answer: %s\n",
			cli.Lines(a.Redact(err.Error())))
	}
	return nil
}

func (a *app) askAbout(ctx context.Context, target string, mark fence.Mark) (*knownView, error) {
	st, err := a.LookUp(ctx)
	if err != nil {
		return nil, err
	}
	defer st.Close()
	now, err := st.Now(ctx)
	if err != nil {
		return nil, err
	}
	v := &knownView{now: now, Owners: []string{}}
	if fence.CheckKey(mark.Key) == nil {
		rec, err := st.Get(ctx, mark.Key)
		if err != nil {
			return nil, err
		}
		v.addOwners(rec, mark)
	}
	all, err := refusals.Read(ctx, st, "")
	if err != nil {
		return nil, err
	}
	all = only(all, func(r refusals.Refusal) bool { return r.Target == target })
	of := func(kind refusals.Kind) []refusals.Refusal {
		return only(all, func(r refusals.Refusal) bool { return r.Kind() == kind })
	}
	refused, observed, unsure := refusals.SumUp(of(refusals.Refused)), refusals.SumUp(of(refusals.Observed)),
		refusals.SumUp(of(refusals.Unsure))
	v.Refused, v.RefusedSince = refused.Count, cli.When(refused.Since)
	v.Observed, v.ObservedSince = observed.Count, cli.When(observed.Since)
	v.UnsureAdmitted = refusals.SumUp(only(of(refusals.Unsure), func(r refusals.Refusal) bool {
		return r.Admitted
	})).Count
	v.UnsureRefused, v.UnsureSince = unsure.Count-v.UnsureAdmitted, cli.When(unsure.Since)
	return v, nil
}

// addOwners adds the owner of the mark, and the owners of the key's last terms.
func (v *knownView) addOwners(rec tenure.Record, mark fence.Mark) {
	v.Terms = rec.Terms
	for _, term := range slices.Backward(rec.History) {
		if term.Owner != "" && !slices.Contains(v.Owners, term.Owner) {
			v.Owners = append(v.Owners, term.Owner)
		}
		if term.Token == mark.Token && term.Grant == mark.Grant {
			v.Owner, v.Since = term.Owner, cli.When(term.Acquired)
		}
	}
}

func (a *app) printCounts(v *countsView) {
	if v == nil {
		return
	}
	fmt.Fprintf(a.Stdout, "writes  %d\nchanged %s\n", v.Writes, cli.Since(time.Now(), time.Time(v.Changed)))
}

func (a *app) printKnown(v *knownView, mark fence.Mark) {
	if v == nil {
		return
	}
	since := func(n int, t cli.When) string {
		if n == 0 {
			return ""
		}
		return ", since " + cli.ClockTime(v.now, time.Time(t))
	}
	switch {
	case v.Owner != "":
		fmt.Fprintf(a.Stdout, "owner   %s, granted %s\n", cli.Word(v.Owner), cli.Since(v.now, time.Time(v.Since)))
	case mark.Grant != "":
		fmt.Fprintln(a.Stdout, "owner   ?, the store does not remember this grant")
	}
	if v.Terms > 0 {
		names := make([]string, len(v.Owners))
		for i, name := range v.Owners {
			names[i] = cli.Word(name)
		}
		fmt.Fprintf(a.Stdout, "owners  %s, in %d terms of the key\n", strings.Join(names, ", "), v.Terms)
	}
	fmt.Fprintf(a.Stdout, "refused %d%s\n", v.Refused, since(v.Refused, v.RefusedSince))
	fmt.Fprintf(a.Stdout, "let in  %d that would have been refused%s\n", v.Observed, since(v.Observed, v.ObservedSince))
	if unsure := v.UnsureAdmitted + v.UnsureRefused; unsure > 0 {
		fmt.Fprintf(a.Stdout, "unsure  %d, of which %d let in%s\n", unsure, v.UnsureAdmitted,
			since(unsure, v.UnsureSince))
	}
}
