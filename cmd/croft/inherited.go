package main

import (
	"os"
	"slices"
	"strings"
	"time"
)

// ownVariables are for croft itself. A command that croft starts does not
// inherit them.
var ownVariables = []string{
	envWebhookSecret,       // the command could sign requests in the dispatcher's name
	envRaise,               // it may hold passwords
	envStore, envStoreFile, // storeFor hands the store to the command
	envKey, envToken, envLease, envStamp, envDeadline, // of the lease that croft itself runs under
}

// attemptVariables describe the work item that croft itself runs for, if it
// runs for one. "croft run" hands them on. A dispatcher does not: "croft work
// emit" in one of its commands would emit in the name of that item.
var attemptVariables = []string{envEffects, "CROFT_CHECKPOINT", "CROFT_GENERATION", "CROFT_LIMIT"}

// inherited returns the part of croft's environment that commands get, without
// the named variables.
func inherited(without ...string) []string {
	return slices.DeleteFunc(os.Environ(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.Contains(ownVariables, name) || slices.Contains(without, name)
	})
}

// killTimeout bounds the wait for killed processes.
const killTimeout = 10 * time.Second
