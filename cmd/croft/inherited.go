package main

import (
	"os"
	"slices"
	"strings"
)

// inherited is what a command gets of croft's own environment: all but the
// secret of webhooks, with which it could sign requests in the dispatcher's
// name.
func inherited() []string {
	return slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, envWebhookSecret+"=") })
}
