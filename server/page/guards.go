package page

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/refusals"
	"github.com/croft-dev/croft/tenure"
)

// guardWithin bounds the look at the guards of one key.
const guardWithin = 2 * time.Second

// guardRow is a guard that a key's record names.
type guardRow struct {
	Target  string
	Now     time.Time
	State   string // names the badge; see stateOf
	Token   fence.Token
	Owner   string    // of the token; "" if it is not known
	Seq     uint64    // of the last write, if writes are numbered
	Writes  uint64    // that were admitted; 0 if the guard does not count
	Changed time.Time // when the mark last moved, or else when its token was granted
	Granted bool      // Changed is the grant of the token

	Refused int // refusals that are remembered
	Last    time.Time
}

// The states of a guard.
const (
	guardUp       = "up"        // it admits the newest owner alone
	guardBehind   = "behind"    // the newest owner has not been here
	guardAhead    = "ahead"     // it has admitted a token that the store does not know
	guardBare     = "no mark"   // it admits every owner
	guardOther    = "other key" // it guards another key
	guardSilent   = "unknown"   // it did not answer
	guardNotShown = "not shown" // the server may not open it
)

// guards looks at the guards that a record names, all at the same time.
func (p *Page) guards(
	ctx context.Context, v *visit, rec tenure.Record, noted []refusals.Refusal, now time.Time,
) []guardRow {
	ctx, cancel := context.WithTimeout(ctx, guardWithin)
	defer cancel()
	rows := make([]guardRow, len(rec.Guards))
	var all sync.WaitGroup
	for i, target := range rec.Guards {
		rows[i] = guardRow{Target: target, Now: now}
		for _, r := range noted {
			if !r.Admitted && store.Redact(r.Target) == store.Redact(target) {
				rows[i].Refused += max(r.Count, 1)
				rows[i].Last = r.At
			}
		}
		all.Go(func() { p.look(ctx, v, rec, &rows[i]) })
	}
	all.Wait()
	return rows
}

// look fills in what the guard itself tells.
func (p *Page) look(ctx context.Context, v *visit, rec tenure.Record, row *guardRow) {
	g, err := p.openGuard(ctx, v, row.Target)
	if errors.Is(err, guard.ErrElsewhere) || errors.Is(err, guard.ErrNotAllowed) {
		row.State = guardNotShown
		return
	}
	row.State = guardSilent
	if err != nil {
		return
	}
	defer g.Close()
	mark, err := g.Mark(ctx)
	if err != nil {
		return
	}
	row.State = stateOf(mark, rec)
	if row.State == guardBare || row.State == guardOther {
		return // that key may be hidden from the visitor
	}
	row.Token, row.Seq = mark.Token, mark.Seq
	row.Changed, row.Granted = time.UnixMicro(int64(mark.Token)), true
	of := func(t tenure.Term) bool { return t.Token == mark.Token }
	if i := slices.IndexFunc(rec.History, of); i >= 0 {
		row.Owner, row.Changed = rec.History[i].Owner, rec.History[i].Acquired
	}
	if c, ok := g.(guard.Counter); ok {
		if counts, err := c.Counts(ctx); err == nil && !counts.Changed.IsZero() {
			row.Writes, row.Changed, row.Granted = counts.Writes, counts.Changed, false
		}
	}
}

// stateOf compares a guard's mark with the key's record.
func stateOf(mark fence.Mark, rec tenure.Record) string {
	switch {
	case mark.IsZero():
		return guardBare
	case mark.Key != rec.Key:
		return guardOther
	case mark.Token > rec.Token:
		return guardAhead
	case mark.Token < rec.Token:
		return guardBehind
	}
	return guardUp
}

// openGuard opens a guard that a record names: a file of this server, one in
// the store's own place, or one that the operator of the server allows. The
// holder has written the target, so all others stay closed.
func (p *Page) openGuard(ctx context.Context, v *visit, target string) (guard.Guard, error) {
	g, err := p.api.NamedFile(v.Request, v.id, target)
	if !errors.Is(err, guard.ErrElsewhere) {
		return g, err
	}
	// A store on this machine would open any file that its own user may open.
	// But clients on other machines write its records.
	if host, ok := p.st.(guard.Host); ok && !guard.IsFile(target) {
		g, err := host.Guard(ctx, target)
		if !errors.Is(err, guard.ErrElsewhere) {
			return g, err
		}
	}
	return p.o.Guards.Open(ctx, target)
}
