// Package failures collects the errors of a listing. Somebody else may plant
// any number of damaged records, so it keeps the first few errors and counts
// the rest.
package failures

import (
	"errors"
	"fmt"
)

// List is a list of errors. The zero List is empty.
type List struct {
	first []error
	more  int
}

// most limits how many errors a List keeps. So many are enough to see the
// fault.
const most = 10

// Add adds errors. Those beyond the limit are only counted.
func (l *List) Add(errs ...error) {
	for _, err := range errs {
		if len(l.first) < most {
			l.first = append(l.first, err)
		} else {
			l.more++
		}
	}
}

// Err returns the joined errors, or nil if there are none.
func (l *List) Err() error {
	if l.more == 0 {
		return errors.Join(l.first...)
	}
	return fmt.Errorf("%w\nand %d more", errors.Join(l.first...), l.more)
}
