package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// output keeps the first and the last lines of a test's output. The file with
// the whole output has the lines between.
type output struct {
	first, later []string
	dropped      int
}

const (
	mostFirst = 40
	mostLast  = 160
)

func (o *output) add(text string) {
	switch {
	case frame(text):
	case len(o.first) < mostFirst:
		o.first = append(o.first, text)
	case len(o.later) < mostLast:
		o.later = append(o.later, text)
	default:
		copy(o.later, o.later[1:])
		o.later[mostLast-1] = text
		o.dropped++
	}
}

// frame reports whether a line only says that a test begins or continues.
func frame(line string) bool {
	for _, prefix := range []string{"=== RUN", "=== PAUSE", "=== CONT", "=== NAME"} {
		if strings.HasPrefix(line, prefix) {
			return true
		}
	}
	return false
}

// alarms reports whether the output has a panic or a data race.
func (o *output) alarms() bool {
	return slices.ContainsFunc(slices.Concat(o.first, o.later), func(line string) bool {
		return strings.Contains(line, "DATA RACE") || strings.HasPrefix(line, "panic: ")
	})
}

// says reports whether the output has more than the line with the outcome.
func (o *output) says() bool {
	for _, line := range slices.Concat(o.first, o.later) {
		if text := strings.TrimSpace(line); text != "" && !strings.HasPrefix(text, "--- ") {
			return true
		}
	}
	return false
}

func (o *output) write(w io.Writer) {
	fmt.Fprint(w, strings.Join(o.first, ""))
	if o.dropped > 0 {
		fmt.Fprintf(w, "... %d lines are left out here; .tools/tests.json has them\n", o.dropped)
	}
	fmt.Fprint(w, strings.Join(o.later, ""))
}

// last returns the last line that is not about the outcome: the reason of a
// skip.
func (o *output) last() string {
	lines := slices.Concat(o.first, o.later)
	for i := len(lines) - 1; i >= 0; i-- {
		if text := strings.TrimSpace(lines[i]); text != "" && !strings.HasPrefix(text, "--- ") {
			return text
		}
	}
	return "no reason given"
}
