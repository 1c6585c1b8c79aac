package objects

import (
	"errors"
	"fmt"
)

// Failures are the errors of a listing. A neighbour can plant any number of
// damaged objects, so it keeps the first few and counts the rest.
type Failures struct {
	first []error
	more  int
}

// mostFailures is enough to see what is wrong.
const mostFailures = 10

// Add keeps or counts an error.
func (f *Failures) Add(err error) {
	if len(f.first) < mostFailures {
		f.first = append(f.first, err)
	} else {
		f.more++
	}
}

// Err joins the errors; nil if there are none.
func (f *Failures) Err() error {
	if f.more == 0 {
		return errors.Join(f.first...)
	}
	return fmt.Errorf("%w\nand %d more", errors.Join(f.first...), f.more)
}
