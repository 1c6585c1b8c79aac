package main

import (
	"os"
	"slices"
	"strings"
)

// inherited is what a command gets of croft's own environment: all but the
// secret of webhooks, with which it could sign requests in the dispatcher's
// name, the places that an operator allowed, which may hold passwords, and the
// store, which storeFor hands to it.
func inherited() []string {
	return slices.DeleteFunc(os.Environ(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return name == envWebhookSecret || name == envRaise || name == envStore || name == envStoreFile
	})
}
