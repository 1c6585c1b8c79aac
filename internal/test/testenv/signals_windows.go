package testenv

import "os"

// Without signals a server can be killed, but not asked to end or paused.
var (
	terminate, abandon = os.Kill, os.Kill
	pause, resume      os.Signal
)
