// Package failures keeps the errors of a listing. A neighbour can plant any
// number of damaged records, so it keeps the first few and counts the rest.
package failures

import (
	"errors"
	"fmt"
)

// List are errors. The zero value has none.
type List struct {
	first []error
	more  int
}

// most is enough to see what is wrong.
const most = 10

// Add keeps or counts errors.
func (l *List) Add(errs ...error) {
	for _, err := range errs {
		if len(l.first) < most {
			l.first = append(l.first, err)
		} else {
			l.more++
		}
	}
}

// Err joins the errors; nil if there are none.
func (l *List) Err() error {
	if l.more == 0 {
		return errors.Join(l.first...)
	}
	return fmt.Errorf("%w\nand %d more", errors.Join(l.first...), l.more)
}
