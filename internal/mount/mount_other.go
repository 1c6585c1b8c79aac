//go:build !linux && !darwin

package mount

import "errors"

// Of is not supported on this system.
func Of(string) (Mount, error) { return Mount{}, errors.ErrUnsupported }
