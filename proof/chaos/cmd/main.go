// Command chaos runs Croft's clients on real servers under faults, and checks
// their histories against the laws. It also runs the same without guards, which
// must lose updates.
package main

import (
	"os"

	"github.com/croft-dev/croft/proof/chaos"
)

func main() {
	chaos.ServeIfAsked()
	os.Exit(chaos.Main(os.Args[1:], os.Stdout, os.Stderr))
}
