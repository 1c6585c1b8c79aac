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

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/internal/renewal"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/refusals"
)

// inventory --advise lists all keys, reads the history of a sample of them, and
// advises a TTL for keys that are named alike. The history keeps no TTL, so the
// terms of a key count with its present one. docs/ttl.md explains the advice.

// adviceView is the advice for keys that are named alike, in JSON.
type adviceView struct {
	Like     string   `json:"like"` // the name, with * for its varying parts
	Keys     int      `json:"keys"`
	Terms    int      `json:"terms"`
	P50      string   `json:"held_p50,omitempty"`
	P99      string   `json:"held_p99,omitempty"`
	Longest  string   `json:"held_max,omitempty"`
	Expired  int      `json:"expired"`
	Returned int      `json:"returned"` // of the expired: their owners were heard of later
	ByHand   int      `json:"by_hand"`  // ended by an operator
	Left     *float64 `json:"left,omitempty"`
	MinTTL   string   `json:"min_ttl,omitempty"`
	MaxTTL   string   `json:"max_ttl,omitempty"`
	Advised  string   `json:"advised_ttl,omitempty"` // empty: no advice
	Reason   string   `json:"reason"`

	sample  []string // the keys whose history is read
	held    spans
	p50     time.Duration
	p99     time.Duration
	ttl     time.Duration    // the advised one; 0: no advice
	ttls    [2]time.Duration // the shortest and the longest in use; zero: not known
	pause   time.Duration    // the longest from the last renewal of a term to the return of its owner
	late    time.Duration    // the longest by which a renewal came late
	lateTTL time.Duration    // the TTL of that lease
}

// advise prints the advice for the keys that begin with prefix.
func (a *app) advise(ctx context.Context, st store.Store, prefix string) error {
	now, err := a.Now(ctx, st)
	if err != nil {
		return err
	}
	refused, err := refusals.Read(ctx, st, prefix)
	if err != nil {
		return store.Unknown(err)
	}
	seen := newSurvey(now, refused)
	count, stop := a.CountOnTerminal("keys")
	defer func() { stop() }()
	for rec, err := range cli.ListRecords(ctx, st, prefix) {
		if err != nil {
			return store.Unknown(err)
		}
		count()
		seen.add(rec)
	}
	stop()
	count, stop = a.CountOnTerminal("histories")
	if err := seen.readHistories(ctx, st, count); err != nil {
		return store.Unknown(err)
	}
	stop()
	all := seen.advice()
	if a.JSON {
		for _, v := range all {
			a.Print(v)
		}
		return nil
	}
	if len(all) == 0 {
		fmt.Fprintf(a.Stderr, "croft: no%s\n", cmp.Or(which(prefix, ""), " keys"))
		return nil
	}
	t := a.Table("KEYS LIKE", "KEYS", "TERMS", "P50", "P99", "LONGEST", "EXPIRED", "RETURNED", "BY HAND", "LEFT", "TTL",
		"ADVISED", "WHY")
	t.Whole = true // people read the advice for the reasons
	for _, v := range all {
		t.Row(v.row()...)
	}
	t.Flush()
	return nil
}

// advice returns the views of all keys, with their advice.
func (s *survey) advice() []*adviceView {
	all := make([]*adviceView, 0, len(s.alike))
	for _, like := range slices.Sorted(maps.Keys(s.alike)) {
		v := s.alike[like]
		if v.ttls[1] > 0 {
			v.MinTTL, v.MaxTTL = v.ttls[0].String(), v.ttls[1].String()
		}
		if v.held.n > 0 {
			v.p50, v.p99 = v.held.quantile(0.5), v.held.quantile(0.99)
			v.P50, v.P99, v.Longest = rounded(v.p50), rounded(v.p99), rounded(v.held.longest)
		}
		if v.ttl, v.Reason = v.advise(); v.ttl > 0 {
			v.Advised = v.ttl.String()
		}
		all = append(all, v)
	}
	return all
}

const (
	// fewTerms is how many terms say too little about the next one.
	fewTerms = 20
	// leastAdvised is the shortest TTL that croft advises for a lease that has
	// a longer one. A restart of a store takes seconds.
	leastAdvised = 15 * time.Second
)

// ttlSteps are the TTLs that croft advises.
var ttlSteps = []time.Duration{
	leastAdvised, 20 * time.Second, 30 * time.Second, 45 * time.Second, time.Minute, 90 * time.Second,
	2 * time.Minute, 3 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 20 * time.Minute,
	30 * time.Minute, time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour,
}

// step returns the shortest advisable TTL that is enough, or 0.
func step(enough func(ttl time.Duration) bool) time.Duration {
	for _, ttl := range ttlSteps {
		if enough(ttl) {
			return ttl
		}
	}
	return 0
}

// survives returns how long a holder may stand still and keep its lease. The
// worst pause begins just before a renewal, and the holder's own deadline comes
// a margin before the store's.
func survives(ttl time.Duration) time.Duration {
	t := renewal.Policy{TTL: ttl}
	return ttl - t.Margin() - t.Interval()
}

// advise returns the advised TTL, or 0 for no advice, and the reason.
func (v *adviceView) advise() (ttl time.Duration, reason string) {
	longest := v.ttls[1]
	survivor := func(pause time.Duration) time.Duration {
		return step(func(ttl time.Duration) bool { return survives(ttl) > pause })
	}
	switch {
	case v.Terms < fewTerms:
		return 0, fmt.Sprintf("%s: too few to advise", plural(v.Terms, "term"))
	case longest == 0:
		return 0, "an operator has every key now: its owners' TTL is not known"
	case v.Returned > 0:
		reason = fmt.Sprintf("%s and returned up to %s after the last renewal", plural(v.Returned, "owner expired",
			"owners expired"), cli.Short(v.pause))
		if ttl = survivor(v.pause); ttl == 0 {
			return 0, reason + ": too long for any TTL"
		}
		return ttl, fmt.Sprintf("%s: %s survives pauses of %s", reason, shortTTL(ttl), cli.Short(survives(ttl)))
	case 2*v.Expired > v.Terms:
		return 0, fmt.Sprintf("%d of %d terms expired: owners die, or never release the key", v.Expired, v.Terms)
	}
	// A look sees a pause while it lasts. The whole may be twice as long.
	if ttl = survivor(2 * v.late); v.late > 0 && survives(v.lateTTL) <= 2*v.late && ttl > 0 {
		return ttl, fmt.Sprintf("a renewal was %s late, and %s survives %s: too close", cli.Short(v.late),
			shortTTL(v.lateTTL), cli.Short(survives(v.lateTTL)))
	}
	// Work that ends before the first renewal needs no longer TTL.
	short := step(func(ttl time.Duration) bool {
		return renewal.Policy{TTL: ttl}.Interval() >= v.p99 && survives(ttl) > 2*v.late
	})
	if short > 0 && short < longest {
		return short, fmt.Sprintf("99 of 100 terms end within %s: %s covers them without a renewal, and after a "+
			"crash others wait %s instead of %s", cli.Short(v.p99), shortTTL(short), shortTTL(short), shortTTL(longest))
	}
	reason = "no owner lost its key by a pause"
	if v.Expired > 0 {
		reason = fmt.Sprintf("%s and did not return", plural(v.Expired, "owner expired", "owners expired"))
	}
	return longest, fmt.Sprintf("%s: keep %s; after a crash others wait at most that long", reason, shortTTL(longest))
}

// plural counts things. many is one with an s if it is not given.
func plural(n int, one string, many ...string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, append(many, one+"s")[0])
}

// shortTTL is a TTL as people write it on a command line.
func shortTTL(d time.Duration) string {
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

// rounded is a duration in JSON.
func rounded(d time.Duration) string { return d.Round(time.Millisecond).String() }

func (v *adviceView) row() []cli.Cell {
	number := func(n int) cli.Cell { return cli.PlainCell(strconv.Itoa(n)) }
	counted := func(n int, bad cli.Colour) cli.Cell {
		c := number(n)
		if n > 0 {
			c.Colour = bad
		}
		return c
	}
	left := cli.PlainCell("-")
	if v.Left != nil {
		left = leftCell(*v.Left)
	}
	ttl := "-"
	if v.ttls[1] > 0 {
		if ttl = shortTTL(v.ttls[0]); v.ttls[0] != v.ttls[1] {
			ttl += "–" + shortTTL(v.ttls[1])
		}
	}
	advised := cli.PlainCell("-")
	if v.ttl > 0 {
		advised.Text = shortTTL(v.ttl)
		if v.ttls != [2]time.Duration{v.ttl, v.ttl} {
			advised.Colour = cli.Yellow
		}
	}
	p50, p99, longest := "-", "-", "-"
	if v.held.n > 0 {
		p50, p99, longest = cli.Short(v.p50), cli.Short(v.p99), cli.Short(v.held.longest)
	}
	return []cli.Cell{
		cli.PlainCell(cli.Word(v.Like)), number(v.Keys), number(v.Terms), cli.PlainCell(p50),
		cli.PlainCell(p99), cli.PlainCell(longest), counted(v.Expired, cli.Yellow),
		counted(v.Returned, cli.Red), number(v.ByHand), left, cli.PlainCell(ttl), advised, cli.PlainCell(v.Reason),
	}
}
