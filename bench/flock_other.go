//go:build !unix

package main

// flockRivals are there where the kernel has such locks.
func flockRivals(string) []rival { return nil }
