package chaos

import (
	"math"
	"time"

	"github.com/croft-dev/croft/proof/history"
)

// drift watches whether the wall clock, by which most stores here tell the time, is set while they do. What is judged by time assumes that it is not.
type drift struct {
	seen    bool
	lead    int64 // of the wall clock over the boot clock, when last looked at
	stepped bool
}

// step is more than a clock that is corrected little by little moves between two looks.
const step = 20 * time.Millisecond

// look compares the two clocks. They cannot be read at once, so the closest of a few readings counts; when even that is too far apart, nothing is learned.
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
