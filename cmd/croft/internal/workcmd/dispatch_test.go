package workcmd

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/fence"
)

// TestADispatcherSaysOnceWhyNothingIsDelivered: it repeats the reason after an
// hour. Deliveries go to stdout only.
func TestADispatcherSaysOnceWhyNothingIsDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said strings.Builder
		log := slog.New(&dispatchLog{app: &app{&cli.App{Stderr: &said}}})
		for hour := range 2 {
			log.Info("dispatcher_started", "token", 7)
			for range 3 {
				log.Warn("dispatcher_stopped", "error", errors.New("postgres://ann:hunter2@db/app: stale"))
				log.Warn("delivery", "error", "no such customer")
			}
			if got := said.String(); strings.Count(got, "\n") != hour+1 || !strings.Contains(got, "stale") || strings.Contains(got, "hunter2") {
				t.Errorf("in hour %d it says %q", hour, got)
			}
			time.Sleep(time.Hour)
		}
	})
}

// TestADispatcherThatIsToEndDoesSoBelowAMadeUpMark: nothing can ever be
// delivered under its key, so it ends. Other errors may pass.
func TestADispatcherThatIsToEndDoesSoBelowAMadeUpMark(t *testing.T) {
	var said strings.Builder
	var ended error
	log := slog.New(&dispatchLog{app: &app{&cli.App{Stderr: &said}}, stuck: func(err error) { ended = err }})
	log.Warn("dispatcher_stopped", "error", fence.ErrStale)
	if ended != nil {
		t.Errorf("it ends with %v", ended)
	}
	log.Warn("dispatcher_stopped", "error", fmt.Errorf("the key: %w", fence.ErrAhead))
	if !errors.Is(ended, fence.ErrAhead) || strings.Count(said.String(), "\n") != 1 {
		t.Errorf("it ends with %v, and says %q", ended, said.String())
	}
}
