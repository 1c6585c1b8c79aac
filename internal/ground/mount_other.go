//go:build !linux && !darwin

package ground

import "errors"

// MountOf cannot tell on this system.
func MountOf(string) (Mount, error) { return Mount{}, errors.ErrUnsupported }
