package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// Interruptible returns a context that ends when the process is interrupted or
// terminated, or gets one of the further signals. Commands that wait use it.
// The other commands just die, and so do these at the second signal.
//
// Signals ignored at start (background jobs of a script) stay ignored, here and
// in children. A signal that was caught once would no longer be ignored in
// children.
func Interruptible(ctx context.Context, further ...os.Signal) (context.Context, context.CancelFunc) {
	var asked []os.Signal
	for _, sig := range append([]os.Signal{os.Interrupt, syscall.SIGTERM}, further...) {
		if !signal.Ignored(sig) {
			asked = append(asked, sig)
		}
	}
	// NotifyContext without signals would catch all of them.
	if len(asked) == 0 {
		return context.WithCancel(ctx)
	}
	ctx, stop := signal.NotifyContext(ctx, asked...)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}
