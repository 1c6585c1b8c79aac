//go:build !linux

package testenv

// reservable says that ports can be marked as taken.
const reservable = false

func reserve(int) bool { return false }
