package main

import (
	"log/slog"
	"strings"
	"testing"
)

// TestADispatcherSaysOnceWhyNothingIsDelivered, and leaves deliveries to stdout.
func TestADispatcherSaysOnceWhyNothingIsDelivered(t *testing.T) {
	var said strings.Builder
	log := slog.New(&idle{app: &app{stderr: &said}})
	log.Info("dispatcher_started", "token", 7)
	for range 3 {
		log.Warn("dispatcher_stopped", "error", "postgres://ann:hunter2@db/app: stale")
		log.Warn("delivery", "error", "no such customer")
	}
	if got := said.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "stale") || strings.Contains(got, "hunter2") {
		t.Errorf("it says %q", got)
	}
}
