package refusals_test

import (
	"testing"
	"time"

	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/store/refusals"
)

// TestARecorderIsClosedTwice: the second call does nothing, also after a
// refusal.
func TestARecorderIsClosedTwice(t *testing.T) {
	st := mem.New(nil)
	defer st.Close()
	n := refusals.NewRecorder(st, clock.System(), time.Minute)
	n.Close()
	n.Add(refusals.Refusal{Key: "k", Token: 1, Owner: "ann", Act: "write", Code: "stale", Count: 1})
	n.Close()
}
