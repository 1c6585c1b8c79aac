package cli

import (
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
)

// App is one run of the program: its streams, and the flags that every command
// has.
type App struct {
	Stdin  io.Reader
	Stdout *Sink
	Stderr io.Writer

	StoreURL   string
	ConfigPath string
	JSON       bool
	Owner      string
	Timeout    time.Duration

	StoreGiven  func() bool
	OwnerGiven  func() bool
	ConfigGiven func() bool
	// Started is false while cobra still reads the command line. An error is
	// then a mistake in the command line.
	Started bool
	// Quiet leaves out messages that tell of no failure.
	Quiet bool
	// Examining is set by doctor. Its errors then do not advise to run doctor.
	Examining bool

	config  configOnce
	silence silence
	bar     atomic.Pointer[progress] // on the terminal now, or nil
}

// The groups of the help text.
const (
	GroupHold  = "hold"
	GroupWrite = "write"
	GroupLook  = "look"
	GroupHand  = "hand"
	GroupTool  = "tool"
)

// DidYouMean adds similar names to a message, if there are any.
func DidYouMean(message string, near []string) string {
	if len(near) == 0 {
		return message
	}
	return fmt.Sprintf("%s; did you mean %s?", message, strings.Join(near, " or "))
}

// Takes checks the number of arguments. A name in brackets is optional.
func Takes(names ...string) cobra.PositionalArgs {
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

// TakesCommand checks the arguments of a command that runs another: one
// argument, and the command after --.
func TakesCommand(name string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		usage := fmt.Sprintf("%s %s -- COMMAND", c.CommandPath(), name)
		switch at := c.ArgsLenAtDash(); {
		case len(args) == 0 || at == 0:
			return fmt.Errorf("missing argument: %s", name)
		case at > 1 || (at < 0 && len(args) > 1):
			return fmt.Errorf("put -- between the %s and the command: %s", strings.ToLower(name), usage)
		case len(args) == 1:
			return fmt.Errorf("missing command: %s", usage)
		}
		return nil
	}
}
