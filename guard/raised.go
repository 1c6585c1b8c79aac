package guard

import (
	"errors"
	"fmt"

	"github.com/croft-dev/croft/internal/registry"
)

// ErrUnfenced is matched by errors about an act that was done, although the
// fence is not up at a guard that somebody had named. That guard may still
// admit the writes of an owner that the act has ended.
var ErrUnfenced = errors.New("done, but the fence is not up everywhere")

// Raised is the outcome of raising the fence at one resource.
type Raised struct {
	Target string
	Err    error // nil: the fence is up
}

// Unfenced returns the error about resources at which the fence is not up, or
// nil. It matches [ErrUnfenced] and what the errors of these resources match.
func Unfenced(raised []Raised) error {
	var all []error
	for _, r := range raised {
		if r.Err != nil {
			all = append(all, fmt.Errorf("%s: %w", registry.Redact(r.Target), r.Err))
		}
	}
	if len(all) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrUnfenced, errors.Join(all...))
}
