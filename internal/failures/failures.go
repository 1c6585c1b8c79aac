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
	damaged, others []error
	more            int
}

// most limits how many errors of damaged records a List keeps, and how many
// others. So many are enough to see the fault.
const most = 10

// Add adds errors. Those beyond the limits are only counted.
func (l *List) Add(errs ...error) {
	for _, err := range errs {
		kept := &l.others
		if errors.Is(err, store.ErrDamaged) {
			kept = &l.damaged
		}
		if len(*kept) < most {
			*kept = append(*kept, err)
		} else {
			l.more++
		}
	}
}

// Err returns the joined errors, or nil if there are none. They match
// [store.ErrDamaged] only if all of them do: then nothing else is missing in
// the listing.
func (l *List) Err() error {
	err := errors.Join(l.others...)
	switch damaged := errors.Join(l.damaged...); {
	case err == nil:
		err = damaged
	case damaged != nil:
		err = fmt.Errorf("%w\n%s", err, damaged.Error())
	}
	if l.more == 0 {
		return err
	}
	return fmt.Errorf("%w\nand %d more", err, l.more)
}
