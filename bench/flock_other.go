//go:build !unix

package main

// flockRivals returns none: this system has no such locks.
func flockRivals(string) []rival { return nil }
