package main

import (
	"os"
	"time"

	"github.com/croft-dev/croft/fence"
)

// envMaxAhead is how far a token may lie ahead of this machine's clock.
const envMaxAhead = "CROFT_MAX_AHEAD"

func setMaxAhead() error {
	text := os.Getenv(envMaxAhead)
	if text == "" {
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return invalid("%s %q: write how far a token may lie ahead of the clock, for example 8760h", envMaxAhead, text)
	}
	fence.SetMaxAhead(d)
	return nil
}
