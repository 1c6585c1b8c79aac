package gcs

import (
	"fmt"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/clock"
)

// TestFewWritesScanAllKeys: a scan comes only after as many new keys as the
// last one has left. Old keys are removed all the same.
func TestFewWritesScanAllKeys(t *testing.T) {
	p := &pace{every: time.Second}
	now := clock.Instant(0)
	for n := range fewestTidied {
		p.note(fmt.Sprint("young/", n), now)
	}
	now = now.Add(time.Minute) // a scan would now remove all
	for range 3 {
		if p.note("young/0", now); len(p.last) != fewestTidied {
			t.Fatalf("a write to a known key has scanned all: %d of %d are left", len(p.last), fewestTidied)
		}
	}
	for n := range fewestTidied {
		p.note(fmt.Sprint("new/", n), now)
	}
	if len(p.last) != fewestTidied+1 { // the new keys and young/0
		t.Errorf("%d entries are left, want %d", len(p.last), fewestTidied+1)
	}
}
