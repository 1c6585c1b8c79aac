//go:build !linux && !darwin

package dir

import "errors"

// mountOf cannot tell on this system.
func mountOf(string) (mount, error) { return mount{}, errors.ErrUnsupported }
