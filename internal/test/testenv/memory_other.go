//go:build !linux

package testenv

func roomy(uint64) string { return "" }

// InMemory returns "": there is no folder in memory.
func InMemory() string { return "" }
