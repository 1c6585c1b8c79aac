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

// inherited is the part of croft's own environment that commands get.
func inherited() []string {
	return slices.DeleteFunc(os.Environ(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.Contains(ownVariables, name)
	})
}
