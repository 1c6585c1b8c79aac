package cli

import (
	"os"

	"github.com/croft-dev/croft/fence"
)

// envMaxAhead is how far a token may lie ahead of this machine's clock.
const envMaxAhead = "CROFT_MAX_AHEAD"

// SetMaxAhead reads CROFT_MAX_AHEAD and sets the bound on tokens.
func SetMaxAhead() error {
	text := os.Getenv(envMaxAhead)
	if text == "" {
		return nil
	}
	d, err := ParseDuration(text)
	if err != nil || d <= 0 {
		return Invalid("%s %q: write how far a token may lie ahead of the clock, for example 365d", envMaxAhead, text)
	}
	fence.SetMaxAhead(d)
	return nil
}
