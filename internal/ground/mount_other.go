//go:build !linux && !darwin

package ground

import "errors"

// MountOf is not supported on this system.
func MountOf(string) (Mount, error) { return Mount{}, errors.ErrUnsupported }
