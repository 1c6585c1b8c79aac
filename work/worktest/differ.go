package worktest

import (
	"errors"
	"fmt"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/test/suite"
	"github.com/croft-dev/croft/work"
)

// differentErrors says how the error of an answer differs from the law's, in
// any fact that a caller may use. It returns "" if they agree.
func differentErrors(want, got error) string {
	switch {
	case want == nil && got == nil:
		return ""
	case want == nil:
		return "refused (" + got.Error() + "), the law allows it"
	case got == nil:
		return "allowed, the law refuses it: " + want.Error()
	}
	for _, d := range []string{
		sameType[*fence.StaleError](want, got), sameType[*fence.RefusedError](want, got),
		sameType[*work.StateError](want, got), sameType[*work.NotFoundError](want, got),
		sameType[*work.ConflictError](want, got), sameType[*work.LimitError](want, got),
	} {
		if d != "" {
			return d
		}
	}
	for _, target := range []error{
		work.ErrStale, fence.ErrCollision, work.ErrState, work.ErrNotFound, work.ErrConflict, work.ErrInvalid,
		work.ErrUnknown,
	} {
		if errors.Is(want, target) != errors.Is(got, target) {
			return "the error is " + got.Error() + ", the law's is " + want.Error()
		}
	}
	return ""
}

// sameType says how got differs from want if want is of type E.
func sameType[E error](want, got error) string {
	var w, g E
	if !errors.As(want, &w) {
		return ""
	}
	if !errors.As(got, &g) {
		return fmt.Sprintf("the error is %T %v, not a %T: %v", got, got, w, w)
	}
	if refused, ok := any(w).(*fence.RefusedError); ok {
		return suite.Differ(refused.Presented, any(g).(*fence.RefusedError).Presented)
	}
	return suite.Differ(w, g)
}
