// Command chaos runs Croft's clients on real servers while processes are stopped and killed, connections mistreated and servers killed, and holds what they saw against the laws; beside it, the
// same without guards, which must lose updates.
package main

import (
	"os"

	"github.com/croft-dev/croft/proof/chaos"
)

func main() {
	chaos.ServeIfAsked()
	os.Exit(chaos.Main(os.Args[1:], os.Stdout, os.Stderr))
}
