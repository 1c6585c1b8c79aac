// Package early turns a program that imports it into a warden, if the program
// was started as one. It does so before most other packages of the program are
// initialised. A warden needs none of them, and the command that it starts must
// wait for it. In a program with many dependencies this halves the cost of a
// start.
//
// Go initialises packages in the order of their paths, each as soon as its
// imports are initialised. This package imports only package supervise.
package early

import "github.com/croft-dev/croft/internal/supervise"

func init() { supervise.MaybeWarden() }
