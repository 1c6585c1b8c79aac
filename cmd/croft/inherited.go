package main

import (
	"os"
	"slices"
	"strings"
)

// ownVariables are for croft itself. A command that croft starts does not
// inherit them.
var ownVariables = []string{
	envWebhookSecret,       // the command could sign requests in the dispatcher's name
	envRaise,               // it may hold passwords
	envStore, envStoreFile, // storeFor hands the store to the command
	envKey, envToken, envLease, envStamp, envDeadline, // of the lease that croft itself runs under
}

// attemptVariables are of an item that croft itself is run for. A croft run in
// such an attempt hands them on, a dispatcher does not: croft work emit in one
// of its commands would emit in the name of that item.
var attemptVariables = []string{envEffects, "CROFT_CHECKPOINT", "CROFT_GENERATION", "CROFT_LIMIT"}

// inherited is the part of croft's own environment that commands get, without
// the variables that are given.
func inherited(without ...string) []string {
	return slices.DeleteFunc(os.Environ(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.Contains(ownVariables, name) || slices.Contains(without, name)
	})
}
