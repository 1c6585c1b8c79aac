package workcmd

import (
	"fmt"
	"iter"

	"github.com/spf13/pflag"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/store"
)

// listLimit is the default of --limit.
const listLimit = 50

func limitFlag(flags *pflag.FlagSet, limit *int) {
	flags.IntVar(limit, "limit", listLimit, "how many to list at most; 0 for all")
}

// listing prints the results of a ledger, each as a row of a table or as a JSON
// object on a line of its own.
type listing[T any] struct {
	table *cli.Table
	row   func(T) []cli.Cell
	view  func(T) any
	none  string // the noun for "croft: no …" if there are no results
}

// show prints at most limit results of ask, and says if there are more. 0 is no
// limit.
func (l listing[T]) show(a *app, limit int, ask func(limit int) iter.Seq2[T, error]) error {
	n, most := 0, limit
	if limit > 0 {
		most++ // one more shows whether there are more
	}
	for v, err := range ask(most) {
		if err != nil {
			if len(l.table.Rows) > 0 {
				l.table.Flush() // show what could be read
			}
			return store.Unknown(err)
		}
		if n++; limit > 0 && n > limit {
			break
		}
		if !a.JSON {
			l.table.Row(l.row(v)...)
			continue
		}
		a.Print(l.view(v))
		if a.Stdout.Err != nil {
			return nil
		}
	}
	if !a.JSON && n == 0 {
		fmt.Fprintln(a.Stderr, "croft: no "+l.none)
		return nil
	}
	if !a.JSON {
		l.table.Flush()
	}
	if limit > 0 && n > limit {
		fmt.Fprintf(a.Stderr, "croft: there are more than these %d; --limit 0 lists all\n", limit)
	}
	return nil
}
