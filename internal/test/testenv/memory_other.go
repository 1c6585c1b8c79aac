//go:build !linux

package testenv

func roomy() string { return "" }
