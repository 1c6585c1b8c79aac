// Package early makes a program that imports it a warden, if that is what it was started as, before most other packages of the program are initialised. A warden needs none of
// them, and the command that it starts waits for it: in a program with many dependencies this is half of what a start costs.
//
// Go initialises packages in the order of their paths, each as soon as those that it imports are. This one imports nothing but package supervise.
package early

import "github.com/croft-dev/croft/internal/supervise"

func init() { supervise.MaybeWarden() }
