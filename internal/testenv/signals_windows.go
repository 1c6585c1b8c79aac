package testenv

import "os"

// Without signals a server can be killed, and neither asked nor paused.
var (
	terminate, abandon = os.Kill, os.Kill
	pause, resume      os.Signal
)
