//go:build !unix

package testenv

import "errors"

func lockFile(string) (unlock func(), err error) {
	return nil, errors.New("test servers are not built on this system")
}
