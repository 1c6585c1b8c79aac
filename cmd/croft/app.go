package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// app is one run of the program: its streams, and the flags that every command
// has.
type app struct {
	stdin  io.Reader
	stdout *sink
	stderr io.Writer

	storeURL string
	json     bool
	owner    string
	timeout  time.Duration

	storeGiven func() bool
	ownerGiven func() bool
	// started is false while cobra still reads the command line. An error is
	// then a mistake in the command line.
	started bool
	// examining is set by doctor. Its errors then do not advise to run doctor.
	examining bool
}

// The groups of the help text.
const (
	groupHold  = "hold"
	groupWrite = "write"
	groupLook  = "look"
	groupHand  = "hand"
	groupTool  = "tool"
)

func didYouMean(message string, near []string) string {
	if len(near) == 0 {
		return message
	}
	return fmt.Sprintf("%s; did you mean %s?", message, strings.Join(near, " or "))
}

// takes checks the number of arguments. A name in brackets is optional.
func takes(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		for i, name := range names {
			if i >= len(args) && !strings.HasPrefix(name, "[") {
				return fmt.Errorf("missing argument: %s", strings.Join(names[i:], " "))
			}
		}
		if len(args) > len(names) {
			takes := "no arguments"
			if len(names) > 0 {
				takes = strings.Join(names, " ")
			}
			// The argument itself is not repeated: it may be a lease.
			return fmt.Errorf("too many arguments: %d given, it takes %s", len(args), takes)
		}
		return nil
	}
}
