// Package failures collects the errors of a listing. Somebody else may plant
// any number of damaged records, so it keeps the first few errors and counts
// the rest.
package failures

import (
	"errors"
	"fmt"

	"github.com/croft-dev/croft/store"
)

// List is a list of errors. The zero List is empty.
type List struct {
	first []error
	more  int
	other bool // one of the errors is not about damaged records alone
}

// most limits how many errors a List keeps. So many are enough to see the
// fault.
const most = 10

// Add adds errors. Those beyond the limit are only counted, except the first
// that is not about damaged records alone: it says that more is missing.
func (l *List) Add(errs ...error) {
	for _, err := range errs {
		other := !store.OnlyDamaged(err)
		switch {
		case len(l.first) < most:
			l.first = append(l.first, err)
		case other && !l.other:
			l.first[most-1] = err
			l.more++
		default:
			l.more++
		}
		l.other = l.other || other
	}
}

// Err returns the joined errors, or nil if there are none.
func (l *List) Err() error {
	if l.more == 0 {
		return errors.Join(l.first...)
	}
	return fmt.Errorf("%w\nand %d more", errors.Join(l.first...), l.more)
}
