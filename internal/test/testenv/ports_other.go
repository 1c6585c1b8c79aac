//go:build !linux

package testenv

// reservable says that reserve works on this system.
const reservable = false

func reserve(int) bool { return false }
