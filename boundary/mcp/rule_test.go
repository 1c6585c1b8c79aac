package mcp

import (
	"errors"
	"strings"
	"testing"

	"github.com/croft-dev/croft/fence"
)

// TestRulesAreRead: their text form says all there is to them.
func TestRulesAreRead(t *testing.T) {
	for text, want := range map[string]string{
		"write_file":                        "write_file as write_file",
		"*":                                 "* as tools",
		"a as files/{path} for tasks/{id}":  "a as files/{path} for tasks/{id}",
		" a  for tasks/a   as b":            "a as b for tasks/a",
		"":                                  "begin with the name",
		"{a}":                               "begin with the name",
		"a as":                              "not understood",
		"a as b as c":                       "not understood",
		"a to b":                            "not understood",
		"a as files/{path":                  "not closed",
		"a as files/{}":                     "does not name an argument",
		"a as files//{path}":                "empty segment",
		"a for ../b":                        "may not be",
		"a as " + strings.Repeat("x", 1000): "bytes long",
	} {
		r, err := ParseRule(text)
		if err == nil && r.String() != want || err != nil && (!errors.Is(err, fence.ErrInvalid) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %q, %v; want %q", text, r, err, want)
		}
	}
}
