//go:build !linux && !darwin

package clock

import "time"

var machine = newWallGain()

func elapsed() Instant { return machine.now(time.Now()) }
