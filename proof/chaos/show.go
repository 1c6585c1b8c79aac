package chaos

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// progress keeps one line on the screen, about all runs in flight.
func (c *command) progress(p Progress) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kind := "guarded"
	if p.Bare {
		kind = "control"
	}
	c.shown[p.Backend] = fmt.Sprintf(
		"%s %s %d/%ds, %d updates, %d refused, %d faults", p.Backend, kind,
		int(p.Elapsed.Seconds()), int(p.For.Seconds()), p.Updates, p.Refusals, p.Faults,
	)
	if c.terminal {
		c.say("\r\x1b[K%s", strings.Join(slices.Sorted(maps.Values(c.shown)), " | "))
	} else if time.Since(c.told) > 10*time.Second { // a log needs fewer lines
		c.told = time.Now()
		c.say("%s\n", strings.Join(slices.Sorted(maps.Values(c.shown)), " | "))
	}
}

func (c *command) forget(backend string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.shown, backend)
}

// clear removes the progress line, to make room for a lasting one.
func (c *command) clear() {
	if c.terminal {
		c.say("\r\x1b[K")
	}
}

// table prints both runs of every backend side by side.
func (c *command) table(results []pairOf) {
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	row := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }
	row("\twithout guards\t\t\twith guards\t\t\t\t\t\t\n")
	row("backend\tupdates\tlost\tafter\tupdates\tlost\trefused\tunknown\tby hand\tfaults\tfor\n")
	for _, p := range results {
		row("%s\t", p.backend.Name)
		if r := p.bare; r != nil {
			row("%d\t%d\t%s\t", r.Updates, r.Lost, since(r.FirstLoss))
		} else {
			row("-\t-\t-\t")
		}
		if r := p.guarded; r != nil {
			faults := 0
			for _, n := range r.Faults {
				faults += n
			}
			row(
				"%d\t%d\t%d\t%d\t%d\t%d\t%s\n", r.Updates, r.Lost, r.Refusals, r.Unknown, r.ByHand,
				faults, r.Took.Round(time.Second),
			)
		} else {
			row("-\t-\t-\t-\t-\t-\t-\n")
		}
	}
	_ = w.Flush()
	fired := map[string]int{}
	for _, p := range results {
		if p.guarded != nil {
			for name, n := range p.guarded.Faults {
				fired[name] += n
			}
		}
	}
	var list []string
	for _, name := range slices.Sorted(maps.Keys(fired)) {
		list = append(list, fmt.Sprintf("%s %d", name, fired[name]))
	}
	c.print("\nfaults with guards: %s\n", strings.Join(list, ", "))
	for _, p := range results {
		if p.guarded == nil {
			continue
		}
		if len(p.guarded.NeverFired) > 0 {
			c.print("%s: no time for %s\n", p.backend.Name, strings.Join(p.guarded.NeverFired, ", "))
		}
		if p.guarded.ClockStepped {
			c.print(
				"%s: the machine's clock was set during the run, so what rests on it was not judged\n",
				p.backend.Name,
			)
		}
	}
	c.print("%d clients, %d operators, %d keys, seed %d\n", c.clients, c.operators, c.keys, c.seed)
}

func since(d time.Duration) string {
	if d == 0 {
		return "the end"
	}
	return d.Round(100 * time.Millisecond).String()
}

// say writes messages to stderr, print writes results to stdout. Errors of
// writing are ignored.
func (c *command) say(format string, args ...any)   { _, _ = fmt.Fprintf(c.err, format, args...) }
func (c *command) print(format string, args ...any) { _, _ = fmt.Fprintf(c.out, format, args...) }
