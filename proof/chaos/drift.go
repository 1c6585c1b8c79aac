package chaos

import (
	"math"
	"time"

	"github.com/croft-dev/croft/proof/history"
)

// drift notices when somebody sets the wall clock during a run. Most stores
// here tell the time by it. The laws about time assume that nobody does.
type drift struct {
	seen    bool
	lead    int64 // of the wall clock over the boot clock, at the last look
	stepped bool
}

// step is the largest change between two looks that is not a step. A clock that
// is corrected gradually stays below it.
const step = 20 * time.Millisecond

// look compares the two clocks. It cannot read both at once, so it takes the
// closest of five readings. If even that is too far apart, it learns nothing.
func (d *drift) look() {
	closest, lead := int64(math.MaxInt64), int64(0)
	for range 5 {
		before := history.Now()
		wall := time.Now().UnixNano()
		if apart := history.Now() - before; apart < closest {
			closest, lead = apart, wall-before
		}
	}
	if closest > int64(step)/4 {
		return
	}
	if moved := time.Duration(lead - d.lead).Abs(); d.seen && moved > step {
		d.stepped = true
	}
	d.seen, d.lead = true, lead
}
