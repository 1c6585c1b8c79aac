//go:build !unix

package drill

import (
	"errors"
	"fmt"
	"os/exec"

	"github.com/croft-dev/croft/fence"
)

// Supported says why there is no drill on this system.
var Supported error = fmt.Errorf("%w use: the drill stops processes with SIGSTOP, which this system does not have; "+
	"run it on a Unix machine that reaches the same store", fence.ErrInvalid)

func (w *worker) pause() error { return errors.ErrUnsupported }
func (w *worker) wake() error  { return errors.ErrUnsupported }
func ownGroup(*exec.Cmd)       {}
