//go:build !(linux || darwin || dragonfly || freebsd || netbsd || openbsd)

package supervise

import (
	"context"
	"syscall"
	"time"
)

// MaybeWarden does nothing: there are no wardens on this system.
func MaybeWarden() {}

// Child is never made on this system.
type Child struct{}

// Start gives ErrUnsupported.
func Start(context.Context, []string, *Options) (*Child, error) { return nil, ErrUnsupported }

// Pid is 0.
func (*Child) Pid() int { return 0 }

// Done is nil.
func (*Child) Done() <-chan struct{} { return nil }

// Wait gives ErrUnsupported.
func (*Child) Wait() (Status, error) { return Status{}, ErrUnsupported }

// Signal gives ErrUnsupported.
func (*Child) Signal(syscall.Signal) error { return ErrUnsupported }

// AllowFor gives ErrUnsupported.
func (*Child) AllowFor(time.Duration) error { return ErrUnsupported }

// Freeze gives ErrUnsupported.
func (*Child) Freeze(context.Context) error { return ErrUnsupported }

// Thaw does nothing.
func (*Child) Thaw() {}

// Terminate gives ErrUnsupported.
func (*Child) Terminate() error { return ErrUnsupported }

// Kill gives ErrUnsupported.
func (*Child) Kill(context.Context) error { return ErrUnsupported }

// Alive is empty.
func (*Child) Alive() []int { return nil }
