package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/refusals"
	"github.com/croft-dev/croft/tenure"
)

func (a *app) inventoryCommand() *cobra.Command {
	var refused, advise bool
	c := &cobra.Command{
		Use:     "inventory [PREFIX]",
		GroupID: cli.GroupLook,
		Short:   "Show which namespaces are in use, how, and which TTL suits them",
		Long: `Show the keys in use by namespace, which is the part of a key before its first
slash. For every namespace croft shows how many keys there are and how many are
held, how they are used, with which TTLs, which held lease is closest to its
end, and how the remembered terms began.

PATTERN is how the keys are used, in one or several of these ways:
  item    taken and given back
  period  once per period
  hold    kept for a while after success
  loop    taken again as soon as the hold ends

LEFT is the least part of the TTL that a held lease has left. Renewed leases
stay above a half. EXPIRED counts terms that began because the owner before was
not heard from in time. BY HAND counts those that an operator began. A namespace
is flagged if its records name no guard: its leases decide who may try, but
nothing stops a stale owner's write.

REFUSED counts attempts of owners that no longer had the key: writes that guards
refused, renewals and releases. OBSERVED counts writes that would have been
refused and were let in, by "croft write --observe" and "croft proxy --observe":
any at all means that work runs twice. UNSURE counts writes for which the store
could not be asked who the current owner is, and how many of them were let in by
the mark alone (--when-unsure).

With --refusals each is listed: when, whose, and what was newer. The process
that refuses, or lets in, notes it in the store, if it can reach it. Of each of
the three, the store remembers the last 32 of each namespace, and forgets them a
day after the last. The count of a writer that is refused again and again goes
on. A + says that others may be forgotten.

With --advise croft advises a TTL for keys that are named alike. It reads the
last 32 terms of each key, without those that an operator held:
  P50, P99, LONGEST  how long terms lasted that did not expire
  EXPIRED            terms whose owners were not heard from in time
  RETURNED           those whose owners were heard of later: they only paused
  BY HAND            terms that an operator ended
  LEFT               the least part of a TTL that was left before a renewal
The advised TTL survives the pauses that were seen. If there were none and terms
are short, croft advises a shorter TTL, so that others wait less after a crash.
Below 20 terms it advises nothing.`,
		Example: `  croft inventory
  croft inventory --refusals orders/
  croft inventory --advise
  croft inventory --json | jq 'select(.unguarded > 0)'`,
		Args:              cli.Takes("[PREFIX]"),
		ValidArgsFunction: a.CompleteKey,
		RunE: func(c *cobra.Command, args []string) error {
			prefix := ""
			if len(args) > 0 {
				prefix = args[0]
			}
			ctx, cancel := context.WithTimeout(c.Context(), cli.ListTimeout)
			defer cancel()
			st, err := a.Open(ctx)
			if err != nil {
				return err
			}
			defer st.Close()
			if advise {
				return a.advise(ctx, st, prefix)
			}
			return a.inventory(ctx, st, prefix, refused)
		},
	}
	c.Flags().BoolVar(&refused, "refusals", false,
		"list what was refused or let in all the same, instead of namespaces")
	c.Flags().BoolVar(&advise, "advise", false, "advise a TTL for keys that are named alike, instead of namespaces")
	c.MarkFlagsMutuallyExclusive("refusals", "advise")
	return c
}

// inventoryView is a namespace in JSON.
type inventoryView struct {
	Namespace string   `json:"namespace"`
	Keys      int      `json:"keys"`
	Held      int      `json:"held"`
	Patterns  []string `json:"patterns"`
	MinTTL    string   `json:"min_ttl"`
	MaxTTL    string   `json:"max_ttl"`
	Left      *float64 `json:"left,omitempty"` // the least of all held leases, as a part of the TTL
	Terms     int64    `json:"terms"`
	Expired   int      `json:"expired"`
	ByHand    int      `json:"by_hand"`
	Unguarded int      `json:"unguarded"` // keys whose records name no guard
	// Refused is the number of remembered refusals. RefusedKeys has it by key.
	Refused     int            `json:"refused"`
	RefusedKeys map[string]int `json:"refused_keys,omitempty"`
	// Observed counts writes that would have been refused and were let in.
	Observed     int            `json:"observed"`
	ObservedKeys map[string]int `json:"observed_keys,omitempty"`
	// These count writes for which the store could not be asked.
	UnsureAdmitted int `json:"unsure_admitted"`
	UnsureRefused  int `json:"unsure_refused"`

	own               int // keys of Croft itself, which need no guard
	patterns          map[string]bool
	shortest, longest time.Duration // TTLs
	noted             map[refusals.Kind][]refusals.Refusal
}

func (a *app) inventory(ctx context.Context, st store.Store, prefix string, list bool) error {
	now, err := a.Now(ctx, st)
	if err != nil {
		return err
	}
	var missing damage
	refused, err := refusals.Read(ctx, st, prefix)
	if err := missing.rest(err); err != nil {
		return err
	}
	refused = only(refused, func(r refusals.Refusal) bool { return !cli.Hidden(r.Key, prefix) })
	if list {
		a.listRefusals(refused, now, prefix)
		return missing.err()
	}
	spaces := map[string]*inventoryView{}
	space := func(name string) *inventoryView {
		if spaces[name] == nil {
			spaces[name] = &inventoryView{
				Namespace: name, patterns: map[string]bool{}, noted: map[refusals.Kind][]refusals.Refusal{},
			}
		}
		return spaces[name]
	}
	count, stop := a.CountOnTerminal("keys")
	defer stop()
	for rec, err := range cli.ListRecords(ctx, st, prefix) {
		if err != nil {
			if err := missing.rest(err); err != nil {
				return err
			}
			continue
		}
		count()
		space(fence.Namespace(rec.Key)).add(rec, now)
	}
	stop()
	for _, r := range refused {
		v := space(fence.Namespace(r.Key))
		v.noted[r.Kind()] = append(v.noted[r.Kind()], r)
	}
	if len(spaces) == 0 && !a.JSON {
		fmt.Fprintf(a.Stderr, "croft: no%s\n", cmp.Or(which(prefix, ""), " keys"))
		return missing.err()
	}
	t := a.Table("NAMESPACE", "KEYS", "HELD", "PATTERN", "TTL", "LEFT", "TERMS", "EXPIRED", "BY HAND", "REFUSED",
		"OBSERVED", "UNSURE", "GUARDS")
	for _, name := range slices.Sorted(maps.Keys(spaces)) {
		v := spaces[name]
		v.Patterns = slices.Sorted(maps.Keys(v.patterns))
		v.sumUp()
		v.MinTTL, v.MaxTTL = v.shortest.String(), v.longest.String()
		if a.JSON {
			a.Print(v)
			continue
		}
		t.Row(v.row()...)
	}
	if !a.JSON {
		t.Flush()
	}
	return missing.err()
}

// add counts one key.
func (v *inventoryView) add(rec tenure.Record, now time.Time) {
	v.patterns[patternOf(rec)] = true
	if v.longest = max(v.longest, rec.TTL); v.Keys == 0 || rec.TTL < v.shortest {
		v.shortest = rec.TTL
	}
	v.Keys++
	v.Terms += rec.Terms
	switch {
	case cli.Own(rec.Key):
		v.own++
	case len(rec.Guards) == 0:
		v.Unguarded++
	}
	if rec.Alive(now) && rec.TTL > 0 {
		v.Held++
		left := rec.Deadline.Sub(cli.NowFor(rec, now)).Seconds() / rec.TTL.Seconds()
		if v.Left == nil || left < *v.Left {
			v.Left = &left
		}
	}
	causes := []tenure.Cause{rec.Cause}
	if len(rec.History) > 0 {
		causes = causes[:0]
		for _, term := range rec.History {
			causes = append(causes, term.Cause)
		}
	}
	for _, c := range causes {
		switch c {
		case tenure.Expired:
			v.Expired++
		case tenure.Operator, tenure.Cancelled, tenure.Handoff:
			v.ByHand++
		}
	}
}

// sumUp counts the refusals.
func (v *inventoryView) sumUp() {
	v.Refused, v.RefusedKeys = sumByKey(v.noted[refusals.Refused])
	v.Observed, v.ObservedKeys = sumByKey(v.noted[refusals.Observed])
	v.UnsureAdmitted = refusals.SumUp(only(v.noted[refusals.Unsure], func(r refusals.Refusal) bool {
		return r.Admitted
	})).Count
	v.UnsureRefused = refusals.SumUp(v.noted[refusals.Unsure]).Count - v.UnsureAdmitted
}

// sumByKey counts refusals, in all and by key.
func sumByKey(all []refusals.Refusal) (sum int, keys map[string]int) {
	keys = map[string]int{}
	for _, r := range all {
		if _, done := keys[r.Key]; !done {
			keys[r.Key] = refusals.SumUp(only(all, func(x refusals.Refusal) bool { return x.Key == r.Key })).Count
			sum += keys[r.Key]
		}
	}
	return sum, keys
}

// only returns the refusals that fit.
func only(all []refusals.Refusal, fits func(refusals.Refusal) bool) []refusals.Refusal {
	return slices.DeleteFunc(slices.Clone(all), func(r refusals.Refusal) bool { return !fits(r) })
}

// patternOf guesses from a record how its key is used.
func patternOf(rec tenure.Record) string {
	hold := rec.HoldUntil.Sub(rec.Acquired)
	switch {
	case rec.Every > 0:
		return "period"
	case rec.HoldUntil.IsZero() || hold <= 0:
		return "item"
	}
	// A loop takes its key again as soon as the hold is over.
	again := 0
	for i := 1; i < len(rec.History); i++ {
		if gap := rec.History[i-1].Acquired.Sub(rec.History[i].Acquired).Abs(); gap < hold+hold/2 {
			again++
		}
	}
	if again >= 2 {
		return "loop"
	}
	return "hold"
}

// leftCell shows which part of a TTL is left.
func leftCell(part float64) cli.Cell {
	c := cli.PlainCell(fmt.Sprintf("%.0f%%", 100*part))
	if part < 0.3 {
		c.Colour = cli.Red
	}
	return c
}

func (v *inventoryView) row() []cli.Cell {
	ttl := v.MinTTL
	if v.MaxTTL != v.MinTTL {
		ttl += "–" + v.MaxTTL
	}
	left := cli.Cell{}
	if v.Left != nil {
		left = leftCell(*v.Left)
	}
	guards := cli.Cell{Text: "all name one", Colour: cli.Green}
	switch {
	// The store remembers refusals only.
	case v.Keys == 0:
		ttl, guards = "", cli.Cell{}
	case v.own == v.Keys:
		guards = cli.Cell{Text: "Croft's own: needs none"}
	case v.Unguarded == 0:
	case v.Unguarded == v.Keys-v.own:
		guards = cli.Cell{Text: "none named: a stale owner's write would count", Colour: cli.Red}
	default:
		guards = cli.Cell{Text: fmt.Sprintf("%d of %d keys name none", v.Unguarded, v.Keys-v.own), Colour: cli.Yellow}
	}
	count := func(n int, bad cli.Colour) cli.Cell {
		c := cli.PlainCell(strconv.Itoa(n))
		if n > 0 {
			c.Colour = bad
		}
		return c
	}
	noted := func(n int, kind refusals.Kind, bad cli.Colour) cli.Cell {
		c := count(n, bad)
		if len(v.noted[kind]) >= tenure.HistoryLen { // the oldest may be forgotten
			c.Text += "+"
		}
		return c
	}
	unsure := noted(v.UnsureAdmitted+v.UnsureRefused, refusals.Unsure, cli.Yellow)
	if v.UnsureAdmitted > 0 {
		unsure.Text += fmt.Sprintf(", %d let in", v.UnsureAdmitted)
		unsure.Colour = cli.Red
	}
	name := cli.Word(v.Namespace)
	if v.Namespace == "" {
		name = "(none)"
	}
	return []cli.Cell{
		cli.PlainCell(name), cli.PlainCell(strconv.Itoa(v.Keys)), cli.PlainCell(strconv.Itoa(v.Held)),
		cli.PlainCell(strings.Join(v.Patterns, ", ")), cli.PlainCell(ttl), left,
		cli.PlainCell(strconv.FormatInt(v.Terms, 10)), count(v.Expired, cli.Yellow), count(v.ByHand, cli.Uncoloured),
		noted(v.Refused, refusals.Refused, cli.Red), noted(v.Observed, refusals.Observed, cli.Red), unsure, guards,
	}
}
